"""Kills of whole commands: a sample of the benches `kills` and `write_points`.

They run in another process: a process that has used polars can't be forked, and pytest's has.
"""

import json
import os
import subprocess
import sys

from bench.kill_commands import differences

# One command per way of saving: pieces and evaluations, training and its folder, sums.
SAMPLE = """
import json, sys
from bench import kills, write_points

points = write_points.run(False, most=4, commands=["graft eval", "finetune", "fisher"])
moments = kills.run(False, kills=6, commands=["finetune"])
sys.stdout.write(json.dumps([points["measured"], moments["measured"]]))
"""


def test_a_command_killed_at_a_write_point_or_a_moment_ends_as_if_it_had_not_been() -> None:
    made = subprocess.run(
        [sys.executable, "-c", SAMPLE], capture_output=True, text=True, timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert made.returncode == 0, made.stderr[-3000:]
    points, moments = json.loads(made.stdout)
    for name, found in points.items():
        assert found["points"] >= 20 and found["killed"] >= 4, (name, found)
        assert not found["wrong"], (name, found["examples"])
    assert moments["finetune"]["kills"] == 6
    assert not moments["finetune"]["wrong"], moments["finetune"]["examples"]


def test_lost_doubled_and_changed_rows_are_differences() -> None:
    assert differences(["a", "b"], ["b", "a"]) == []
    assert differences(["a", "b"], ["a"]) == ["lost b"]
    assert differences(["a"], ["a", "a"]) == ["more a"]
    assert differences(["a 1"], ["a 2"]) == ["lost a 1", "more a 2"]
