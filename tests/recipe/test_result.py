import shlex
import time

import numpy as np
import pytest

from cutaway.cli.main import app
from cutaway.cli.verbs import VERBS
from cutaway.methods.probe.spec import ProbeSpec
from cutaway.recipe.result import command_line, measure_cost, provenance
from cutaway.store.versions import versions

SPEC = ProbeSpec(
    model="a,b/c",
    data="gen:sentiment?n=10,seed=2",
    layers=["0,6", "concat:1,2"],
    pool="last,mean",
    as_="classification",
    offline=True,
    baselines="none",
)


@pytest.mark.parametrize("spec", [SPEC, ProbeSpec(model="m", data="my file.tsv")])
def test_the_command_builds_the_same_spec_again(spec, capsys):
    words = shlex.split(command_line("probe", spec))[1:]
    _, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    assert bound.kwargs["spec"] == spec
    assert words[0] in VERBS


def test_the_command_names_only_what_differs_from_the_defaults():
    assert (
        command_line("probe", ProbeSpec(model="m", data="d")) == "cutaway probe --model=m --data=d"
    )


def test_the_meter_sees_time_and_memory():
    with measure_cost(every=0.01) as meter:
        held = np.ones(40 << 20, dtype=np.uint8)
        time.sleep(0.05)
    assert meter.seconds >= 0.05
    assert meter.peak_memory_mb >= held.nbytes / 2**20


def test_versions_name_what_can_change_a_digit():
    assert {"python", "torch", "transformers", "cutaway"} <= set(versions())


def test_every_run_keeps_its_seed_its_cost_and_the_command_that_repeats_it() -> None:
    spec = ProbeSpec(model="m", data="d", seed=3)
    with measure_cost() as meter:
        pass
    kept = provenance("probe", spec, meter)
    assert (kept["seed"], kept["seconds"]) == (3, meter.seconds)
    assert kept["peak_memory_mb"] == meter.peak_memory_mb > 0
    assert kept["command"] == command_line("probe", spec)
    assert {"python", "torch", "cutaway"} <= set(kept["versions"])
