import pytest
import torch

from trackside_torch.schedules import get_scheduler


def rates(name, warmup=0, total=4, steps=4):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr=1.0)
    schedule = get_scheduler(name, optimizer, warmup, total)
    found = []
    for _ in range(steps + 1):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


@pytest.mark.parametrize(
    ("name", "warmup", "expected"),
    [
        ("linear", 0, [1, 0.75, 0.5, 0.25, 0]),
        ("linear", 2, [0, 0.5, 1, 0.5, 0]),
        ("cosine", 0, [1, 0.853553, 0.5, 0.146447, 0]),
        ("constant", 2, [1, 1, 1, 1, 1]),
        ("constant_with_warmup", 2, [0, 0.5, 1, 1, 1]),
        ("linear", 8, [0, 0.125, 0.25, 0.375, 0.5]),
    ],
)
def test_the_rate_rises_over_the_warm_up_and_then_follows_its_schedule(name, warmup, expected):
    assert rates(name, warmup) == pytest.approx(expected, abs=1e-6)


def test_the_rate_stays_at_its_last_value_when_training_goes_on():
    assert rates("linear", steps=6)[-2:] == [0, 0]
    assert rates("cosine", steps=6)[-2:] == pytest.approx([0, 0])
