"""Tests of the cache as a whole."""

import json
import os
import time

import pytest
import torch

from cutaway.core.errors import BadSpec, Missing
from cutaway.store import cache
from cutaway.store.activations import load_activations, open_activations


def _make_table(folder, model, used=None, rows=4):
    table = open_activations({"model": model}, rows, folder)
    with table.writer() as writer:
        writer.append(range(rows), {"7/last": torch.rand(rows, 100), "8/last": torch.rand(rows, 1)})
    table.read("7/last")
    if used is not None:
        os.utime(table.folder / "used", (used, used))
    return table.folder


@pytest.fixture
def three(tmp_path):
    now = time.time()
    return [
        _make_table(tmp_path, name, now - age) for name, age in [("a", 3e5), ("b", 2e5), ("c", 1)]
    ]


def _models(folder):
    return [entry.model for entry in cache.list_entries(folder)]


def test_an_empty_cache_has_nothing(tmp_path):
    assert cache.list_entries(tmp_path / "x") == []
    assert cache.cache_size(tmp_path / "x") == 0
    assert cache.verify(folder=tmp_path / "x") == []
    assert cache.enforce_limit(folder=tmp_path / "x") == []


def test_entries_say_what_a_table_holds(tmp_path):
    path = _make_table(tmp_path, {"name": "gpt2", "digest": "00"}, used=0)
    (entry,) = cache.list_entries(tmp_path)
    assert (entry.digest, entry.model, entry.rows) == (path.name, "gpt2", 4)
    assert entry.columns == ("7/last", "8/last")
    assert (
        entry.bytes == sum(p.stat().st_size for p in path.iterdir()) == cache.cache_size(tmp_path)
    )
    assert entry.used.timestamp() == 0
    assert json.loads(json.dumps(entry.plain()))["model"] == "gpt2"
    assert "gpt2  4 rows, 2 columns" in entry.line()


def test_listing_leaves_no_trace(tmp_path, three):
    before = sorted(tmp_path.rglob("*"))
    cache.list_entries(tmp_path)
    cache.verify(folder=tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_most_recently_used_comes_first(tmp_path, three):
    assert _models(tmp_path) == ["c", "b", "a"]
    load_activations(three[0]).read("7/last")
    assert _models(tmp_path) == ["a", "c", "b"]


def test_the_least_recently_used_goes_first(tmp_path, three):
    gone = cache.prune(max_bytes=cache.cache_size(tmp_path) - 1, folder=tmp_path)
    assert [entry.model for entry in gone] == ["a"]
    assert _models(tmp_path) == ["c", "b"]
    assert cache.prune(max_bytes=cache.cache_size(tmp_path), folder=tmp_path) == []
    assert len(cache.prune(max_bytes=0, folder=tmp_path)) == 2
    assert list(tmp_path.iterdir()) == []


def test_what_was_not_used_for_long_goes(tmp_path, three):
    assert [e.model for e in cache.prune(older_than_days=3, folder=tmp_path)] == ["a"]
    assert _models(tmp_path) == ["c", "b"]


def test_one_table_goes_by_the_first_digits_of_its_name(tmp_path, three):
    assert cache.prune(digest=three[1].name[:12], folder=tmp_path)[0].model == "b"
    with pytest.raises(Missing, match="cache ls"):
        cache.prune(digest="nothing", folder=tmp_path)
    with pytest.raises(Missing):
        cache.prune(digest="", folder=tmp_path)


def test_digits_that_fit_several_tables_are_refused(tmp_path, three):
    twin = three[0].with_name(three[0].name[:20] + "f" * 44)
    twin.mkdir()
    with pytest.raises(BadSpec, match="matches 2"):
        cache.prune(digest=three[0].name[:20], folder=tmp_path)


@pytest.mark.parametrize("rules", [{}, {"max_bytes": 1, "digest": "a"}])
def test_exactly_one_rule_is_needed(tmp_path, rules):
    with pytest.raises(BadSpec, match="exactly one"):
        cache.prune(folder=tmp_path, **rules)


@pytest.mark.parametrize("amount", [-1, -0.5, float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("rule", ["max_bytes", "older_than_days"])
def test_what_is_no_amount_drops_nothing(tmp_path, three, rule, amount):
    with pytest.raises(BadSpec, match=f"{rule} must be a number >= 0"):
        cache.prune(folder=tmp_path, **{rule: amount})
    assert len(_models(tmp_path)) == 3


def test_a_table_in_use_stays(tmp_path, three):
    held = load_activations(three[0])
    assert [e.model for e in cache.prune(max_bytes=0, folder=tmp_path)] == ["b", "c"]
    assert cache.prune(older_than_days=0, folder=tmp_path) == []
    with pytest.raises(BadSpec, match="in use"):
        cache.prune(digest=three[0].name, folder=tmp_path)
    assert cache.list_entries(tmp_path)[0].busy
    assert held.read("7/last").shape == (4, 100)
    del held
    assert len(cache.prune(max_bytes=0, folder=tmp_path)) == 1


def test_a_table_opened_while_it_is_dropped_is_put_back(tmp_path, three, monkeypatch):
    looks = iter([False, True])
    monkeypatch.setattr(cache, "in_use", lambda _: next(looks))
    assert not cache._evict_one(three[0])
    assert load_activations(three[0]).read("7/last").shape == (4, 100)
    assert sorted(tmp_path.iterdir()) == sorted(three)


def test_a_table_another_process_dropped_first_is_no_error(tmp_path):
    assert not cache._evict_one(tmp_path / "gone")


def test_the_limit_is_kept(tmp_path, three, monkeypatch):
    assert cache.enforce_limit(folder=tmp_path) == []
    monkeypatch.setenv("CUTAWAY_CACHE_GB", "0.000003")
    cache.enforce_limit(folder=tmp_path)
    assert cache.cache_size(tmp_path) <= 3000
    assert cache.enforce_limit(0, tmp_path)


@pytest.mark.parametrize(("said", "bytes_"), [("", 20e9), ("1.5", 1.5e9), (" 0 ", 0)])
def test_the_limit_is_the_users(monkeypatch, said, bytes_):
    monkeypatch.setenv("CUTAWAY_CACHE_GB", said)
    assert cache.cache_limit() == bytes_


@pytest.mark.parametrize("said", ["much", "-1", "nan", "inf", "1e400"])
def test_a_limit_that_is_no_size_is_refused(monkeypatch, said):
    monkeypatch.setenv("CUTAWAY_CACHE_GB", said)
    with pytest.raises(BadSpec, match="CUTAWAY_CACHE_GB"):
        cache.cache_limit()


def _flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def _cut(path):
    path.write_bytes(path.read_bytes()[:-5])


DAMAGES = {
    "flipped bit": ("*.safetensors", _flip),
    "truncated": ("*.safetensors", _cut),
    "lost": ("*.safetensors", lambda path: path.unlink()),
    "sidecar cut": ("shard-*.json", _cut),
    "sidecar flipped": (
        "shard-*.json",
        lambda p: p.write_text(p.read_text().replace("F32", "F33")),
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_dropped_and_made_again(tmp_path, damage):
    pattern, spoil = DAMAGES[damage]
    table = load_activations(_make_table(tmp_path, "a"))
    (bad,) = table.folder.glob(pattern)
    with table.writer() as writer:
        writer.append([0, 1], {"9/last": torch.ones(2, 3)})
    spoil(bad)
    (problem,) = cache.verify(folder=tmp_path)
    assert problem.path.stem == bad.stem
    assert bad.stem in problem.reason
    assert cache.verify(repair=True, folder=tmp_path) == [problem]
    assert cache.verify(folder=tmp_path) == []
    assert table.covered(["7/last"]).sum() == 0
    assert table.covered(["9/last"]).sum() == 2
    assert list(table.folder.glob(f"{bad.stem}*")) == []


def test_a_damaged_manifest_is_named_and_the_table_lives_on(tmp_path):
    path = _make_table(tmp_path, "a")
    (path / "manifest.json").write_text("{")
    (problem,) = cache.verify(folder=tmp_path)
    assert problem.path == path / "manifest.json"
    assert _models(tmp_path) == ["?"]
    cache.verify(repair=True, folder=tmp_path)
    assert open_activations({"model": "a"}, 4, tmp_path).read("7/last").shape == (4, 100)


def test_repair_sweeps_what_killed_processes_left(tmp_path):
    path = _make_table(tmp_path, "a")
    dead = f".tmp-00000000-1-{'0' * 32}"
    left = [path / f"x{dead}", tmp_path / f"y{dead}", path / "shard-1.safetensors"]
    for file in left:
        file.write_bytes(b"half")
        os.utime(file, (0, 0))
    assert [problem.path for problem in cache.verify(folder=tmp_path)] == [left[2]]
    cache.verify(repair=True, folder=tmp_path)
    assert not any(file.exists() for file in left)
    assert _models(tmp_path) == ["a"]


def test_keeping_the_limit_sweeps_what_killed_processes_left(tmp_path):
    path = _make_table(tmp_path, "a")
    left = path.with_name(f"{path.name}.tmp-00000000-1-{'0' * 32}")
    left.mkdir()
    os.utime(left, (0, 0))
    assert cache.enforce_limit(10**12, tmp_path) == []
    assert not left.exists() and _models(tmp_path) == ["a"]
