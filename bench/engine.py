"""The engines: what a piece costs, what two Ray workers cost beside one process, what a lost node
changes, and whether partial sums are the sum.

Pieces of the overhead take five seconds by the clock, whoever else uses the machine: two workers
with eight of them should be done when one process is done with four. What is over is the engine's.
"""

import os
import statistics
import time
from functools import partial
from itertools import pairwise
from typing import Any

import torch

from bench.report import row
from bench.shortcut_fit import layers_of
from cutaway.engine import run_pieces
from cutaway.methods.shortcut.maths.moments import MomentAccumulator, Moments, layer_pairs

BARE, PIECES, SECONDS = 10_000, 8, 5.0


def run(quick: bool, rounds: int = 3) -> dict[str, Any]:
    """Every bar of the engine room; Ray is stopped at the end."""
    import ray

    bare, pieces, seconds = (200, 2, 0.2) if quick else (BARE, PIECES, SECONDS)
    rounds = 1 if quick else min(rounds, 3)
    load = os.getloadavg()[0]
    # Ray and its two workers are up before anything is timed.
    list(run_pieces("ray", partial(wait, 0.2), range(8)))
    each = {name: per_piece(name, bare, rounds) for name in ("local", "local:2", "ray")}
    over = overhead(pieces, seconds)
    ray.shutdown()
    same, lost = node_lost(4 if quick else 16)
    worst = partial_sums()
    return {
        "title": "Engines",
        "text": f"{bare:,} pieces that do nothing, median of {rounds}; {pieces} pieces of "
        f"{seconds:g} s by the clock. Load average of the machine before the start: "
        f"{load:.1f}.",
        "table": [
            row("a piece that does nothing, ray", f"{each['ray']:.2f} ms", bar="<= 10 ms",
                met=each["ray"] <= 10),
            row("a piece that does nothing, local:2", f"{each['local:2']:.3f} ms"),
            row("a piece that does nothing, local", f"{each['local']:.4f} ms"),
            row("two Ray workers with all pieces, one process with half of them",
                f"{over['ray']:.1f} s",
                f"{over['local']:.1f} s", over["ray"] / over["local"], "<= 1.1x",
                over["ray"] <= 1.1 * over["local"]),
            row("two-node cluster, one node killed on the way", "same table" if same else "differs",
                bar="same table", met=same),
            row("pieces that were tried again for it", str(lost)),
            row("partial sums against the single pass, worst relative difference",
                f"{worst:.1e}", bar="<= 1e-10", met=worst <= 1e-10),
        ],
    }  # fmt: skip


def nothing(piece: int) -> int:
    """A piece that costs nothing."""
    return piece


def wait(seconds: float, piece: int) -> int:
    """A piece that takes so long by the clock, and no core from the others."""
    time.sleep(seconds)
    return piece


def per_piece(engine: str, count: int, rounds: int) -> float:
    """Milliseconds of an empty piece."""
    laps = []
    for _ in range(rounds):
        start = time.perf_counter()
        assert sum(1 for _ in run_pieces(engine, nothing, range(count))) == count
        laps.append((time.perf_counter() - start) / count * 1000)
    return statistics.median(laps)


def overhead(pieces: int, seconds: float) -> dict[str, float]:
    """Seconds in which one process does half of the pieces, and two Ray workers all of them."""
    found = {}
    for engine, count in (("local", pieces // 2), ("ray", pieces)):
        start = time.perf_counter()
        list(run_pieces(engine, partial(wait, seconds), range(count)))
        found[engine] = time.perf_counter() - start
    return found


def node_lost(pieces: int) -> tuple[bool, int]:
    """Whether the table is the same when a node is killed after a fifth of it; how many retries."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    cluster.wait_for_nodes()
    said: list[str] = []
    table = {}
    for piece, got in run_pieces(
        cluster.address, partial(wait, 0.5), range(pieces), say=said.append
    ):
        table[piece] = got
        if len(table) == max(1, pieces // 5):
            cluster.remove_node(nodes[0], allow_graceful=False)
    ray.shutdown()
    cluster.shutdown()
    return table == {n: n for n in range(pieces)}, len(said)


def partial_sums(width: int = 64, rows: int = 6000, parts: int = 7) -> float:
    """The worst relative difference between seven partial sums added up and one pass."""
    states = layers_of(rows, width)
    pairs = layer_pairs(len(states) - 1)
    cuts = [rows * i // parts for i in range(parts + 1)]
    sums = [_moments(states, pairs, a, b) for a, b in pairwise(cuts)]
    total = sum(sums[1:], sums[0])
    one = _moments(states, pairs, 0, rows).state()
    return max(
        float((total.state()[name] - value).norm() / value.norm().clamp_min(1e-300))
        for name, value in one.items()
        if name != "rows"
    )


def _moments(states: dict[int, torch.Tensor], pairs: list[Any], start: int, end: int) -> Moments:
    gatherer = MomentAccumulator(list(pairs), cross=torch.float64)
    gatherer.add({layer: rows[start:end] for layer, rows in states.items()})
    return gatherer.moments()
