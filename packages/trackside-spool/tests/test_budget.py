"""Couriers leave the loop its time: all of them together have a small share of it."""

import os
import threading

import pytest

from trackside_spool.budget import BUDGET, Budget
from trackside_testkit.workbench import in_forked_child


def test_no_two_couriers_count_on_the_same_time():
    budget = Budget(share=0.1)
    assert budget.reserve(1) == 0
    assert budget.reserve(1) == pytest.approx(10, abs=1)
    assert budget.reserve(1) == pytest.approx(20, abs=1)


def test_what_was_reserved_and_not_used_is_given_back_and_more_is_paid_for():
    budget = Budget(share=0.1)
    budget.reserve(1)
    budget.settle(0.5)
    assert budget.reserve(0) == pytest.approx(5, abs=1)
    budget.settle(-1)
    assert budget.reserve(0) == pytest.approx(15, abs=1)


def test_nobody_waits_while_it_is_lifted():
    budget = Budget(share=0.1)
    budget.reserve(100)
    with budget.lifted(), budget.lifted():
        assert budget.reserve(1) == 0
    assert budget.reserve(0) > 100


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system forks no processes")
def test_a_forked_child_has_the_same_budget_anew_also_while_a_thread_of_its_parent_uses_it():
    held, done = threading.Event(), threading.Event()

    def hold():
        with BUDGET._lock:
            held.set()
            done.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(20)
    assert in_forked_child(lambda: BUDGET.reserve(1) == 0)
    done.set()
    thread.join()
