import threading

import pytest

from trackside.deadline import later, within


def test_an_answer_in_time_is_returned_and_an_error_raised():
    assert within(20, lambda: 42) == 42
    with pytest.raises(ZeroDivisionError):
        within(20, lambda: 1 / 0)


def test_who_takes_too_long_is_not_waited_for_and_what_comes_late_is_handed_on():
    gate, came, late = threading.Event(), threading.Event(), []

    def take_late(value):
        late.append(value)
        came.set()

    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 seconds"):
        within(0.05, lambda: gate.wait(20), take_late)
    gate.set()
    assert came.wait(20)
    assert late == [True]


def test_a_timeout_of_the_calls_own_is_its_error():
    def give_up():
        raise TimeoutError("the server is slow")

    with pytest.raises(TimeoutError, match="the server is slow"):
        within(20, give_up)


def test_a_call_does_not_run_in_the_thread_of_its_caller():
    assert later(threading.current_thread).result(20) is not threading.current_thread()
