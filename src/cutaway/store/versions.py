"""Versions of the packages that can change a number, as runs and artefacts record them."""

import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cutaway.console import show_message

PACKAGES = ("cutaway", "torch", "transformers", "tokenizers", "numpy", "scikit-learn", "scipy")
COMPARED = ("cutaway", "transformers", "torch")
"""What an artefact depends on: the states it was made from."""


@cache
def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def versions() -> dict[str, str]:
    """Installed versions of Python and of the packages that can change a number."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    return found | {package: _installed(package) for package in PACKAGES}


def report_other_versions(path: Path, made: Mapping[str, str]) -> None:
    """A message if an artefact was made with another cutaway, transformers or torch.

    Local builds count as the same version (2.13.0+cpu and 2.13.0). Files of older versions of
    Cutaway record none.
    """
    now = versions()
    other = [
        name for name in COMPARED if name in made and _public(made[name]) != _public(now[name])
    ]
    if other:
        then = ", ".join(f"{name} {made[name]}" for name in other)
        here = ", ".join(f"{name} {now[name]}" for name in other)
        show_message(
            f"Warning: {path} was made with {then}; here are {here}. The same model may give other "
            "states: make it again if the numbers matter."
        )


def _public(text: str) -> str:
    return text.partition("+")[0]
