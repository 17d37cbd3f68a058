"""A real Ray: two nodes on this machine, one of which is taken away."""

import subprocess
import sys
import time

import pytest

from cutaway.core.errors import Missing, NoRoom
from cutaway.engine import find_engine, run_pieces
from cutaway.engine.cluster import check_resources
from cutaway.engine.pieces import PieceOptions, Resources
from cutaway.store.progress import Progress
from tests.engine import work
from tests.engine.test_recipes import grid
from tests.tiny import tiny

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'cutaway[ray]'")


@pytest.fixture(scope="module")
def two_nodes():
    """A head without cores and two nodes with one each, so that both get work."""
    ray.shutdown()
    cluster, nodes = _started()
    yield cluster, nodes
    ray.shutdown()
    cluster.shutdown()


def _started(tries: int = 3):
    """A cluster with its two nodes; Ray's services may come up too late on a starved machine."""
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    try:
        cluster.add_node(num_cpus=0)
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
        cluster.wait_for_nodes()
    except Exception:
        cluster.shutdown()
        if tries == 1:
            raise
        return _started(tries - 1)
    return cluster, nodes


def test_workers_see_the_drivers_settings(two_nodes, monkeypatch):
    monkeypatch.setenv("CUTAWAY_HOME", "/somewhere/shared")
    found = dict(run_pieces(two_nodes[0].address, work.setting, ["CUTAWAY_HOME"]))
    assert found == {"CUTAWAY_HOME": "/somewhere/shared"}


def test_pieces_say_what_they_need_and_the_cluster_what_it_has(two_nodes):
    address = two_nodes[0].address
    assert (find_engine(address).workers(), find_engine(address).gpus()) == (2, 0)
    found = dict(run_pieces(address, work.square, [1, 2], needs=Resources(cpus=1, memory=1000)))
    assert found == {1: 1, 2: 4}


def test_a_piece_that_fits_nowhere_is_said_and_refused_where_nothing_can_join(two_nodes):
    said = []
    terms = PieceOptions(needs=Resources(cpus=2), notify=said.append)
    check_resources(ray, two_nodes[0].address, terms)
    assert "A piece needs 2 CPUs, 0 GPUs" in said[0]
    with pytest.raises(NoRoom, match="more than this machine has"):
        check_resources(ray, None, terms)


def test_a_grid_on_two_nodes_is_the_same_table_when_one_is_killed(two_nodes, tmp_path, monkeypatch):
    """A real grid: the third node that is added goes away once the first cell is kept."""
    cluster, _ = two_nodes
    extra = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path / "home"))
    model = str(tiny("gpt2", tmp_path / "gpt2"))
    calm = grid(model, tmp_path / "calm", "local")
    put, kept = Progress.put, []

    def put_then_kill(self, key, rows, details=()):
        put(self, key, rows, details)
        kept.append(key)
        if len(kept) == 1:
            cluster.remove_node(extra, allow_graceful=False)

    monkeypatch.setattr(Progress, "put", put_then_kill)
    rough = grid(model, tmp_path / "rough", cluster.address)
    assert rough.equals(calm)
    assert len(kept) == len(set(kept))


def test_a_node_that_is_removed_takes_no_piece_with_it(two_nodes, tmp_path):
    cluster, nodes = two_nodes
    counted, found, said = work.Slow(str(tmp_path)), [], []
    for piece, got in run_pieces(cluster.address, counted, range(16), notify=said.append):
        found.append((piece, got))
        if len(found) == 3:
            cluster.remove_node(nodes[1], allow_graceful=False)
    assert sorted(found) == [(n, n * n) for n in range(16)]


def test_a_cluster_that_is_not_there_is_said_within_seconds():
    start = time.monotonic()
    with pytest.raises(Missing, match=r"No Ray cluster at 'ray://127.0.0.1:9'"):
        list(run_pieces("ray://127.0.0.1:9", work.square, [1]))
    assert time.monotonic() - start < 10


def test_without_ray_the_error_has_the_pip_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(Missing, match=r"pip install 'cutaway\[ray\]'") as caught:
        list(run_pieces("ray", work.square, [1]))
    assert caught.value.exit_status == 2


def test_neither_ray_nor_torch_is_loaded_with_the_engines():
    code = (
        "import cutaway.engine, cutaway.cli, sys; "
        "assert not {'ray', 'torch', 'grpc'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
