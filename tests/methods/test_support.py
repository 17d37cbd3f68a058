"""Every method reports what it can do with a model, without loading torch."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from cutaway.catalog import method_module, methods


def model(*, has_head: bool = True, mlp: str | None = "mlp") -> SimpleNamespace:
    return SimpleNamespace(has_head=has_head, anatomy=SimpleNamespace(mlp=mlp))


def test_support_is_reported_without_torch() -> None:
    code = (
        "import sys; from cutaway.catalog import method_module, methods; "
        "[method_module(name, 'page').supports for name in methods()]; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("method", methods())
def test_every_method_supports_a_complete_model(method) -> None:
    assert method_module(method, "page").supports(model()) == "yes"


@pytest.mark.parametrize("method", methods())
def test_only_probe_needs_nothing_of_a_missing_head(method) -> None:
    answer = method_module(method, "page").supports(model(has_head=False))
    assert (answer == "yes") == (method == "probe")
    assert method == "probe" or answer.endswith("the checkpoint has no language-model head")


def test_shortcut_works_without_the_parts_of_blocks_but_says_so() -> None:
    answer = method_module("shortcut", "page").supports(model(mlp=None))
    assert answer.startswith("yes, without sub-modules")
