import itertools

import pytest
import torch
from tiny import Items, Stream
from torch.utils.data import DataLoader

from trackside_torch.data import EpochSampler, IterableShare, collate, iterate_epoch, make_loader, move, size_of
from trackside_torch.processes import Processes


def process(rank=0, world_size=1):
    return Processes(rank, rank, world_size, torch.device("cpu"))


def indices(length, batch_size=4, world_size=1, **options):
    """For each rank, the batches of indices."""
    samplers = [EpochSampler(length, batch_size, process(rank, world_size), **options) for rank in range(world_size)]
    lists = [list(sampler) for sampler in samplers]
    assert [len(found) for found in lists] == [len(sampler) for sampler in samplers]
    return [[found[i : i + batch_size] for i in range(0, len(found), batch_size)] for found in lists]


def test_each_epoch_has_an_order_of_its_own_and_always_the_same():
    sampler = EpochSampler(20, 4, process(), seed=1)
    first = list(sampler)
    sampler.set_epoch(1)
    second = list(sampler)
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second
    sampler.set_epoch(0)
    assert list(sampler) == first


def test_without_a_seed_the_order_is_that_of_the_data():
    assert indices(6) == [[[0, 1, 2, 3], [4, 5]]]


@pytest.mark.parametrize("length", [16, 17, 19, 23])
def test_the_processes_share_the_global_batches_that_one_process_would_have(length):
    (alone,) = indices(length, batch_size=8, seed=3)
    shares = indices(length, batch_size=4, world_size=2, seed=3)
    together = [[*first, *second] for first, second in itertools.zip_longest(*shares, fillvalue=[])]
    assert together == alone


@pytest.mark.parametrize("length", [1, 16, 17, 19, 23])
def test_in_training_all_processes_have_the_same_number_of_items(length):
    shares = indices(length, world_size=3, seed=3, is_even=True)
    assert len({tuple(map(len, batches)) for batches in shares}) == 1
    assert {i for batches in shares for batch in batches for i in batch} == set(range(length))


def test_drop_last_leaves_out_a_global_batch_that_is_not_full():
    assert indices(19, world_size=2, drop_last=True) == [
        [[0, 1, 2, 3], [8, 9, 10, 11]],
        [[4, 5, 6, 7], [12, 13, 14, 15]],
    ]


@pytest.mark.parametrize("is_even", [True, False])
def test_an_iterable_is_shared_by_its_global_batches(is_even):
    shares = [list(IterableShare(range(11), 2, process(rank, 2), is_even=is_even)) for rank in range(2)]
    assert shares == ([[0, 1, 4, 5], [2, 3, 6, 7]] if is_even else [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10]])


def batches_of(loader, first_batch, epoch=1):
    return [batch["x"] for batch in iterate_epoch(loader, epoch, 5, 0, first_batch)]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["map", "stream", "foreign"])
def test_an_epoch_goes_on_in_its_middle_with_the_batches_it_would_have_had(kind, workers):
    noise = 0.1 if workers else 0.0
    items = Items(32, noise=noise)
    if kind == "foreign":
        loader = DataLoader(items, 4, shuffle=True, num_workers=workers)
    else:
        data = Stream(items) if kind == "stream" else items
        loader = make_loader(data, 4, process(), seed=7, is_training=True, num_workers=workers)
    whole = batches_of(loader, 0)
    rest = batches_of(loader, 3)
    assert len(rest) == len(whole) - 3
    assert all(torch.equal(a, b) for a, b in zip(whole[3:], rest, strict=True))
    assert len(batches_of(loader, 0)) == len(whole)


def test_passed_over_items_are_not_loaded():
    asked = []

    class Watched(Items):
        def __getitem__(self, i):
            asked.append(i)
            return super().__getitem__(i)

    loader = make_loader(Watched(32), 4, process(), seed=7)
    batches_of(loader, 7)
    assert len(asked) == 4


def test_loading_does_not_touch_the_random_numbers_of_the_training():
    before = torch.get_rng_state()
    batches_of(make_loader(Items(8), 4, process(), seed=7), 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_label_and_label_ids_become_labels():
    assert set(collate([{"x": 1.0, "label": 2}])) == {"x", "labels"}
    assert set(collate([{"x": 1.0, "label_ids": 2, "labels": 3}])) == {"x", "label_ids", "labels"}


def test_the_size_of_a_batch_is_that_of_its_first_tensor():
    assert size_of({"text": ["a", "b"], "x": (torch.zeros(2, 3),)}) == 2
    assert size_of({"scalar": torch.zeros(())}) is None


def test_tensors_move_at_any_depth_and_the_rest_stays():
    moved = move({"a": [torch.zeros(1)], "b": (torch.zeros(1), "text")}, torch.device("meta"))
    assert moved["a"][0].device.type == moved["b"][0].device.type == "meta"
    assert moved["b"][1] == "text"
