"""r2 on texts: a killed pass goes on from its sums, with the same bits."""

import pytest

from cutaway.console import Console
from cutaway.methods.shortcut import held_out_r2, sample
from cutaway.methods.shortcut.held_out_r2 import r2_on_texts
from cutaway.methods.shortcut.maths.fidelity import StreamingR2
from cutaway.methods.shortcut.maths.fit import IDENTITY

QUIET = Console(quiet=True)


@pytest.fixture
def maps(maps):
    return {"id": {(0, 3): IDENTITY}, "mat": {(0, 3): maps.jump(0, 3), (1, 3): maps.jump(1, 3)}}


def test_a_killed_pass_goes_on_from_its_sums(other_sample, maps, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("cutaway.store.snapshots.SAVE_SECONDS", 0.0)
    monkeypatch.setattr("cutaway.store.snapshots.WORK_PER_WRITING", 0.0)
    rows = other_sample.held_out if len(other_sample.held_out) > 8 else other_sample.train

    def small_parts(self, rows, layers):
        return sample.stored_states(self.table, rows, layers, at_once=4)

    monkeypatch.setattr(sample.StateSample, "states", small_parts)
    straight = r2_on_texts(other_sample, rows, maps, QUIET, None)
    added = []

    class Killed(StreamingR2):
        def add(self, batch, maps) -> None:
            if len(added) == 2:
                raise KeyboardInterrupt
            added.append(len(batch[0]))
            super().add(batch, maps)

    monkeypatch.setattr(held_out_r2, "StreamingR2", Killed)
    with pytest.raises(KeyboardInterrupt):
        r2_on_texts(other_sample, rows, maps, QUIET, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000008"]
    monkeypatch.setattr(held_out_r2, "StreamingR2", StreamingR2)
    resumed = r2_on_texts(other_sample, rows, maps, QUIET, tmp_path)
    assert resumed == straight and list(resumed) == list(straight)
