"""Cross-products: partial sums of workers add up to the single pass."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from cutaway.console import Console
from cutaway.methods.shortcut import cross_products
from cutaway.methods.shortcut.cross_products import (
    PartialMoments,
    example_ranges,
    gather_moments,
)
from cutaway.methods.shortcut.maths.moments import (
    MomentAccumulator,
    layer_pairs,
    moments_from_state_dict,
)
from cutaway.methods.shortcut.sample import stored_states
from cutaway.methods.shortcut.spec import FitSpec
from cutaway.store.activations import open_activations


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@pytest.mark.parametrize("precise", [True, False])
def test_partial_sums_add_up_to_the_single_pass(workers, precise) -> None:
    """To 1e-10 relative, also where chunks are multiplied in float32: they are the same chunks."""
    rng = np.random.default_rng(0)
    marks = rng.integers(1, 4, size=60)
    table = open_activations({"for": f"sums {workers} {precise}"}, 60)
    generator = torch.Generator().manual_seed(0)
    rows = int(marks.sum())
    states = {i: torch.randn(rows, 6, generator=generator) * 10**i + 100 for i in range(3)}
    with table.writer() as writer:
        writer.append_ragged(range(60), marks, {f"{i}/marks": s for i, s in states.items()})
    texts = np.sort(rng.choice(60, size=45, replace=False))
    worker = PartialMoments(table, layer_pairs(2), 2, precise, chunk=16)
    ranges = list(example_ranges(texts, marks[texts], workers, worker.chunk))
    assert len(ranges) <= workers
    parts = [
        moments_from_state_dict({k: torch.as_tensor(v) for k, v in worker(one).items()})
        for one in ranges
    ]
    total, single = sum(parts[1:], parts[0]), worker.accumulator()
    for _, batch in stored_states(table, texts, range(3), at_once=7):
        single.add(batch)
    one = single.moments()
    assert total.rows == one.rows == marks[texts].sum()
    for name, value in one.state_dict().items():
        torch.testing.assert_close(total.state_dict()[name], value, rtol=1e-10, atol=0, msg=name)


def test_a_killed_worker_goes_on_from_its_own_sums(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("cutaway.store.snapshots.SAVE_SECONDS", 0.0)
    monkeypatch.setattr("cutaway.store.snapshots.WORK_PER_WRITING", 0.0)
    monkeypatch.setattr(cross_products, "stored_states", partial(stored_states, at_once=3))
    table, generator = open_activations({"for": "a killed worker"}, 30), torch.Generator()
    states = {f"{i}/marks": torch.randn(60, 6, generator=generator) for i in range(3)}
    with table.writer() as writer:
        writer.append_ragged(range(30), [2] * 30, states)
    worker = PartialMoments(table, layer_pairs(2), 2, False, chunk=16, folder=tmp_path)
    first, second = example_ranges(np.arange(30), np.full(30, 2), 2, worker.chunk)
    straight = replace(worker, folder=None)(second)
    add, calls = MomentAccumulator.add, []

    def killed(self, batch) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        add(self, batch)

    monkeypatch.setattr(MomentAccumulator, "add", killed)
    with pytest.raises(KeyboardInterrupt):
        worker(second)
    assert [path.name for path in tmp_path.iterdir()] == [second.folder] != [first.folder]
    resumed = worker(second)
    assert len(calls) == 6, "two of five batches are not added again"
    assert all(np.array_equal(resumed[name], value) for name, value in straight.items())


@pytest.mark.parametrize("missing", [True, False])
def test_a_worker_without_the_folder_saves_nothing(tmp_path, monkeypatch, missing) -> None:
    monkeypatch.setattr("cutaway.store.snapshots.SAVE_SECONDS", 0.0)
    table = open_activations({"for": f"a worker elsewhere {missing}"}, 2)
    with table.writer() as writer:
        writer.append_ragged(range(2), [1, 1], {f"{i}/marks": torch.ones(2, 6) for i in range(3)})
    folder = tmp_path / "elsewhere" if missing else tmp_path
    worker = PartialMoments(table, layer_pairs(2), 2, False, folder=folder)
    [only] = example_ranges(np.arange(2), np.ones(2, dtype=int), 1, worker.chunk)
    worker(only)
    assert bool(list(tmp_path.iterdir())) != missing


@pytest.mark.parametrize(("workers", "chunk"), [(1, 5), (3, 4), (8, 100)])
def test_ranges_cover_every_example_once(workers, chunk) -> None:
    marks = np.array([2, 1, 3, 4, 1, 2])
    ranges = list(example_ranges(np.arange(6), marks, workers, chunk))
    examples = [(text, n) for text in range(6) for n in range(marks[text])]
    covered = []
    for one in ranges:
        inside = [example for example in examples if example[0] in set(one.texts.tolist())]
        covered += inside[one.skip : one.skip + one.count]
    assert covered == examples
    assert all(one.count % chunk == 0 for one in ranges[:-1])


def test_the_products_are_those_of_the_training_states(other_sample) -> None:
    spec = FitSpec(model="-", precise=True)
    moments = gather_moments(other_sample, spec, Console(quiet=True))
    [(_, states)] = other_sample.states(other_sample.train, [0, 3])
    expected = states[0].double().T @ states[3].double()
    torch.testing.assert_close(moments.grams[0, 3], expected, rtol=1e-9, atol=1e-9)
