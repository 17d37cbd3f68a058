"""The specs of graft read lists; the example file is a valid request."""

import subprocess
import sys
from pathlib import Path

import pytest

from cutaway.core.spec import build_spec
from cutaway.methods.graft.spec import LearnSpec


def test_a_spec_reads_lists_from_flags() -> None:
    spec = build_spec(LearnSpec, {"base": "b", "tuned": "t", "task": "k", "sparsity": "1e-4,1e-3",
                             "seeds": "1,2", "baselines": "none"})  # fmt: skip
    assert (spec.sparsity, spec.seeds, spec.baselines) == ((1e-4, 1e-3), (1, 2), ())


EXAMPLES = Path(__file__).parents[3] / "examples"


def test_the_example_file_is_a_valid_request() -> None:
    from cutaway.core.spec import parse_toml

    values = parse_toml((EXAMPLES / "graft.toml").read_text())
    assert values.pop("verb") == "graft learn"
    assert build_spec(LearnSpec, values).base == "smollm2-135m"


@pytest.mark.slow
def test_the_example_script_runs(toy) -> None:
    base, _ = toy.pair("llama")
    words = [sys.executable, str(EXAMPLES / "graft.py"), base, "dog,cat"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "as before: True" in done.stdout
