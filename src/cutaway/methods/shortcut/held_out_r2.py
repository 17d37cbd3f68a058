"""r2 of maps on texts that they were not fitted on, in one pass over the stored states."""

from collections.abc import Mapping
from pathlib import Path

from cutaway.console import Console
from cutaway.methods.shortcut.maths.fidelity import StreamingR2
from cutaway.methods.shortcut.maths.fit import Shortcut
from cutaway.methods.shortcut.sample import StateSample, TextRows
from cutaway.store.snapshots import Snapshots

JumpsByKind = Mapping[str, Mapping[tuple[int, int], Shortcut]]
"""Maps by kind and pair of layers."""


def r2_on_texts(
    sample: StateSample, rows: TextRows, maps: JumpsByKind, console: Console, folder: Path | None
) -> dict[tuple[str, tuple[int, int]], float]:
    """r2 of every map by kind and pair of layers; unfinished sums are saved in `folder`."""
    streaming, snapshots = StreamingR2(), Snapshots(folder, console)
    saved, done = snapshots.load(), 0
    if saved is not None:
        streaming.load_state_dict({name: saved.tensor(name).clone() for name in saved.names})
        done = int(saved.meta["texts"])
    with console.progress("r2", len(rows)) as advance:
        advance(done)
        for part, states in sample.states(rows[done:], range(sample.lm.layers + 1)):
            streaming.add(states, maps)
            advance(len(part))
            done += len(part)
            if snapshots.due(at_end=done == len(rows)):
                snapshots.save(done, streaming.state_dict(), {"texts": done})
    found = streaming.all()
    return {(kind, pair): found[kind, pair] for kind, pairs in maps.items() for pair in pairs}
