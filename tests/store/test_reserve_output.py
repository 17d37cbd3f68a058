"""Two runs never write to the same place at the same time."""

import subprocess
import sys

import pytest

from cutaway.core.errors import BadSpec
from cutaway.store.reserve_output import reserve_output


def leftovers(folder) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_the_second_of_two_different_runs_is_refused_until_the_first_ends(tmp_path):
    out = str(tmp_path / "new" / "map.safetensors")
    with reserve_output(out, "aa11"):
        with pytest.raises(BadSpec, match=r"aa11.*map\.safetensors"), reserve_output(out, "bb22"):
            pass
        with reserve_output(str(tmp_path / "new" / "other.safetensors"), "bb22"):
            pass
    with reserve_output(out, "bb22"):
        pass
    assert leftovers(tmp_path / "new") == []


def test_the_same_run_twice_is_allowed(tmp_path):
    out = str(tmp_path / "map.safetensors")
    with reserve_output(out, "aa11"), reserve_output(out, "aa11"):
        pass


def test_a_killed_process_reserves_nothing(tmp_path):
    out = str(tmp_path / "map[1].safetensors")
    code = (
        "import os, sys; from cutaway.store.reserve_output import reserve_output as r\n"
        "with r(sys.argv[1], 'aa11'): os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, out], check=False)
    assert leftovers(tmp_path)
    with reserve_output(out, "bb22"):
        pass
    assert leftovers(tmp_path) == []
