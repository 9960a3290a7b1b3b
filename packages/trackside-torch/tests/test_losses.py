import math

import pytest
import torch

from trackside_torch.losses import MOST_WAITING, RunningLoss
from trackside_torch.processes import Processes


def running(losses, share=1.0, skips_non_finite=True):
    loss = RunningLoss(Processes(0, 0, 1, torch.device("cpu")), skips_non_finite=skips_non_finite)
    for value in losses:
        loss.add(torch.tensor(value) * share, share)
    return loss


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_does_not_move_the_mean(bad):
    assert running([2.0] * 6 + [bad] + [2.0] * 3).take() == 2.0


def test_without_the_filter_a_nan_is_seen():
    assert math.isnan(running([2.0, math.nan], skips_non_finite=False).take())


def test_if_no_loss_is_finite_the_log_has_0_and_a_warning_says_so(caplog):
    assert running([math.nan]).take() == 0.0
    assert "Every loss since the last log was nan or infinite" in caplog.text


def test_each_mean_is_that_since_the_one_before():
    loss = running([1.0, 3.0])
    assert loss.take() == 2.0
    loss.add(torch.tensor(7.0), 1.0)
    assert loss.take() == 7.0
    assert loss.overall() == pytest.approx(11 / 3)


def test_batches_count_by_their_share_of_a_step():
    loss = running([4.0, 8.0], share=0.5)
    loss.add(torch.tensor(3.0), 1.0)
    assert loss.take() == 4.5


def test_there_is_no_end_to_the_number_of_losses_between_two_logs():
    loss = running([1.0] * (3 * MOST_WAITING + 1))
    assert len(loss._waiting) == 1
    assert loss.take() == 1.0


def test_a_training_without_steps_has_the_loss_0():
    assert running([]).overall() == 0.0
