import copy
import inspect
import pickle
from typing import ClassVar

import pytest

from trackside import EarlyStoppingCallback
from trackside.spelling import ChecksArguments, closest


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("learning_rat", "learning_rate"),
        ("batch_size", "per_device_batch_size"),
        ("num_epochs", "num_train_epochs"),
        ("rate", "learning_rate"),
        ("optim", None),
        ("num_workers", None),
    ],
)
def test_a_name_is_meant_that_is_spelled_alike_or_has_all_the_words(typed, meant):
    assert closest(typed, ["learning_rate", "per_device_batch_size", "num_train_epochs"]) == meant


class Bread(ChecksArguments):
    instead: ClassVar = {"butter": "pass it to the knife"}

    def __init__(self, flour, *, rising_time=60):
        self.flour = flour
        self.rising_time = rising_time


def test_all_unknown_arguments_are_named_with_what_to_type_instead():
    with pytest.raises(TypeError) as refusal:
        Bread(flour="rye", rising_tim=5, butter=True, jam=True)
    assert str(refusal.value) == (
        "Bread has no argument rising_tim (did you mean rising_time?), butter (pass it to the knife), jam (leave it "
        "out)."
    )


def test_a_subclass_may_take_what_it_likes():
    class Rye(Bread):
        def __init__(self, seeds=0):
            super().__init__("rye")

    class Any(Bread):
        def __init__(self, **kwargs):
            super().__init__(kwargs["grain"])

    assert (Rye(seeds=3).flour, Any(grain="oats").flour) == ("rye", "oats")
    with pytest.raises(TypeError, match=r"Rye has no argument seed \(did you mean seeds\?\)"):
        Rye(seed=3)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda bread: pickle.loads(pickle.dumps(bread))])
def test_what_checks_its_arguments_can_be_copied(duplicate):
    assert vars(duplicate(Bread("rye", rising_time=5))) == {"flour": "rye", "rising_time": 5}


def test_the_signature_stays_that_of_the_constructor():
    assert list(inspect.signature(Bread).parameters) == ["flour", "rising_time"]


def test_early_stopping_knows_patience_by_its_last_word():
    with pytest.raises(TypeError, match=r"no argument patience \(did you mean early_stopping_patience\?\)"):
        EarlyStoppingCallback(patience=2)
