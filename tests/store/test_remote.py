"""Tests of stores on a URL: what one machine writes, another finds; what is half there is not."""

import pickle
import sys
from uuid import uuid4

import fsspec
import numpy as np
import pytest
import torch

from cutaway.core.errors import BadSpec, Corrupt, Missing, RunError
from cutaway.core.spec import build_spec
from cutaway.methods.probe.spec import ProbeSpec
from cutaway.store import remote
from cutaway.store.activations import open_activations
from cutaway.store.cache import list_entries, prune, verify
from cutaway.store.home import cache_folder
from cutaway.store.results import find_record, results
from tests.store.samples import ADDRESS, keep

KEY = {"model": "gpt2", "weights": "ab12"}
VALUES = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=["memory", "file"])
def url(request, tmp_path) -> str:
    """fsspec's file system in memory, and a folder reached as a URL."""
    if request.param == "memory":
        return f"memory://{uuid4().hex}/kept"
    return f"file://{tmp_path / 'far' / 'kept'}"


@pytest.fixture
def machine(tmp_path, monkeypatch, url):
    """Become another machine: the same store, an empty disk of its own."""

    def become(name: str) -> None:
        monkeypatch.setenv("CUTAWAY_HOME", url)
        monkeypatch.setenv("CUTAWAY_MIRROR", str(tmp_path / name))

    become("one")
    return become


def _fill(rows=range(10), **options):
    numbers = np.asarray(rows)
    with open_activations(KEY, 10).writer(**options) as writer:
        writer.append(numbers, {"1/last": VALUES[numbers]})


def _far(url: str, ending: str) -> list[str]:
    system, place = fsspec.core.url_to_fs(url)
    return sorted(p for p in system.find(place) if p.endswith(ending))


def test_what_one_machine_writes_another_finds(machine):
    _fill()
    machine("two")
    table = open_activations(KEY, 10)
    assert table.covered(["1/last"]).all()
    assert set(table.columns()) == {"1/last"}
    assert torch.equal(table.read("1/last"), VALUES)


def test_ragged_columns_are_found_too(machine):
    lengths = np.arange(1, 11)
    values = torch.randn(int(lengths.sum()), 2)
    with open_activations(KEY, 10).writer() as writer:
        writer.append_ragged(range(10), lengths, {"1/all": values})
    machine("two")
    found, offsets = open_activations(KEY, 10).read_ragged("1/all")
    assert torch.equal(found, values)
    assert offsets.tolist() == [0, *np.cumsum(lengths)]


def test_knowing_which_rows_are_there_fetches_no_shard(machine):
    _fill()
    machine("two")
    table = open_activations(KEY, 10)
    assert table.covered(["1/last"]).all()
    assert not list(table.folder.glob("*.safetensors"))
    table.read("1/last")
    assert len(list(table.folder.glob("*.safetensors"))) == 1


def test_machines_that_write_at_once_make_one_table(machine):
    here = open_activations(KEY, 10)
    _fill(range(4))
    machine("two")
    _fill(range(4, 10))
    machine("one")
    assert torch.equal(here.read("1/last"), VALUES)


def test_a_shard_without_its_description_is_never_seen(machine, monkeypatch):
    """The connection ends after the shard, before the sidecar: neither machine has a row."""
    send = remote.Remote.send

    def cut(self, path, data=None):
        if path.name.startswith("shard-") and data is not None:
            raise ConnectionError("the line is dead")
        send(self, path, data)

    monkeypatch.setattr(remote.Remote, "send", cut)
    with pytest.raises(ConnectionError):
        _fill()
    monkeypatch.setattr(remote.Remote, "send", send)
    assert not open_activations(KEY, 10).covered(["1/last"]).any()
    machine("two")
    assert not open_activations(KEY, 10).covered(["1/last"]).any()
    _fill()
    machine("one")
    assert torch.equal(open_activations(KEY, 10).read("1/last"), VALUES)


def test_a_description_that_was_cut_short_is_never_seen(machine, url):
    _fill()
    system, _ = fsspec.core.url_to_fs(url)
    (described,) = [p for p in _far(url, ".json") if "shard-" in p]
    whole = system.cat_file(described)
    system.pipe_file(described, whole[: len(whole) // 2])
    machine("two")
    assert not open_activations(KEY, 10).covered(["1/last"]).any()
    system.pipe_file(described, whole)
    assert open_activations(KEY, 10).covered(["1/last"]).all()


def test_a_shard_that_changed_on_the_way_is_refused(machine, url):
    _fill()
    system, _ = fsspec.core.url_to_fs(url)
    (shard,) = _far(url, ".safetensors")
    whole = system.cat_file(shard)
    system.pipe_file(shard, whole[:-1] + bytes([whole[-1] ^ 1]))
    machine("two")
    with pytest.raises(Corrupt, match="fails its checksum"):
        open_activations(KEY, 10).read("1/last")


def test_a_mirror_can_be_dropped_at_any_time(machine):
    _fill()
    assert [entry.rows for entry in list_entries()] == [10]
    assert len(prune(max_bytes=0)) == 1
    assert torch.equal(open_activations(KEY, 10).read("1/last"), VALUES)


def test_verify_looks_at_what_is_here_and_fetches_nothing(machine):
    _fill()
    machine("two")
    table = open_activations(KEY, 10)
    table.covered(["1/last"])
    assert verify() == []
    assert not list(table.folder.glob("*.safetensors"))


def test_a_table_travels_by_its_place_in_the_store(machine, tmp_path):
    """A worker has a mirror of its own, wherever its disk is."""
    _fill()
    sent = pickle.dumps(open_activations(KEY, 10))
    machine("two")
    there = pickle.loads(sent)
    assert (tmp_path / "two") in there.folder.parents
    assert torch.equal(there.read("1/last"), VALUES)


def test_runs_go_up_whole_and_are_found_from_elsewhere(machine, url):
    record = keep(url, files={"notes/a.txt": b"a"})
    assert [p.rpartition("/")[2] for p in _far(url, "")].count("result.json") == 1
    machine("two")
    (seen,) = results(url)
    assert seen.address == record.address
    assert seen.rows.equals(record.rows)
    assert seen.file("notes/a.txt").read_bytes() == b"a"
    again = find_record(url, "probe", ADDRESS)
    assert again is not None and again.summary == record.summary
    assert results(url).query("select count(*) as n from rows")["n"].to_list() == [4]


def test_a_run_without_its_result_is_not_there(machine, url, monkeypatch):
    """The connection ends before result.json: elsewhere there is no run; here it is sent again."""
    send = remote.Remote.send

    def cut(self, path, data=None):
        if path.name == "result.json":
            raise RunError("the line is dead")
        send(self, path, data)

    monkeypatch.setattr(remote.Remote, "send", cut)
    with pytest.raises(RunError):
        keep(url)
    monkeypatch.setattr(remote.Remote, "send", send)
    machine("two")
    assert find_record(url, "probe", ADDRESS) is None
    assert len(results(url)) == 0
    machine("one")
    assert find_record(url, "probe", ADDRESS) is not None
    machine("two")
    assert find_record(url, "probe", ADDRESS) is not None


@pytest.mark.parametrize("place", [
    "s3://key:geheim@bucket/runs", "s3://bucket/runs?secret=geheim", "ftp://me@host/x#geheim",
])  # fmt: skip
def test_a_url_with_secrets_is_refused_and_not_repeated(place, monkeypatch, tmp_path):
    with pytest.raises(BadSpec, match="in the environment") as caught:
        build_spec(ProbeSpec, {"model": "gpt2", "data": "sst2", "runs": place})
    assert "geheim" not in str(caught.value)
    monkeypatch.setenv("CUTAWAY_HOME", place)
    monkeypatch.setenv("CUTAWAY_MIRROR", str(tmp_path))
    with pytest.raises(BadSpec):
        cache_folder()


def test_a_url_that_cannot_be_taken_apart_is_refused_and_not_repeated():
    for url in ("s3://[geheim", "s3://geheim\u2100/x"):
        with pytest.raises(BadSpec, match="scheme://place/folder") as caught:
            remote.check_url(url)
        assert "geheim" not in str(caught.value)


def test_credentials_never_land_in_what_is_kept(machine, url, tmp_path, monkeypatch):
    """fsspec takes them from the environment; neither mirror nor store repeats them."""
    for name in ("FSSPEC_MEMORY_KEY", "AWS_SECRET_ACCESS_KEY", "FSSPEC_S3_SECRET"):
        monkeypatch.setenv(name, "geheim")
    _fill()
    keep(url, spec={"runs": url})
    here = [p.read_bytes() for p in (tmp_path / "one").rglob("*") if p.is_file()]
    system, _ = fsspec.core.url_to_fs(url)
    there = [system.cat_file(p) for p in _far(url, "")]
    assert here and there
    assert not any(b"geheim" in data for data in here + there)


def test_a_store_that_cannot_be_reached_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTAWAY_MIRROR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(BadSpec, match="not a URL that fsspec supports"):
        list(results("nowhere://x/y"))
    with pytest.raises(Missing, match="'s3://bucket/x' needs a package"):
        list(results("s3://bucket/x"))


def test_a_plain_folder_is_no_mirror(tmp_path):
    assert remote.local_folder(tmp_path) == tmp_path
    assert remote.remote_of(tmp_path / "x") is None
    assert remote.list_names(tmp_path) == []
