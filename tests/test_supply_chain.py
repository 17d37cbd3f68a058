"""Every package of a release is pinned with hashes, and its licence is known."""

import importlib.util
import re
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


@pytest.fixture(scope="module")
def licences():
    spec = importlib.util.spec_from_file_location("licences", ROOT / "docs" / "licences.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pins(file: str) -> dict[str, str]:
    text = (ROOT / file).read_text(encoding="utf-8")
    return {canonicalize_name(name): version for name, version in PIN.findall(text)}


def test_every_pin_of_a_release_has_hashes_and_the_tested_version() -> None:
    text = (ROOT / "requirements-release.txt").read_text(encoding="utf-8")
    entries = [one for one in re.split(r"\n(?=\S)", text) if one and not one.startswith("#")]
    assert all(PIN.match(one) and "--hash=sha256:" in one for one in entries)
    tested, released = pins("constraints.txt"), pins("requirements-release.txt")
    assert len(released) == len(entries) > 60
    assert {n: v for n, v in released.items() if n in tested and tested[n] != v} == {}
    # What PyTorch needs beside NVIDIA GPUs, and tools that come with other packages.
    others = ("nvidia-", "cuda-", "triton", "setuptools", "typer")
    assert [n for n in released if n not in tested and not n.startswith(others)] == []


def test_a_release_pins_every_dependency(licences) -> None:
    needed = set(licences.dependencies("cutaway", licences.EXTRAS))
    assert needed - set(pins("requirements-release.txt")) == set()


def test_every_dependency_has_a_known_licence_on_a_current_page(licences) -> None:
    packages = licences.dependencies("cutaway", licences.EXTRAS)
    assert len(packages) > 60
    assert [name for name, one in packages.items() if not licences.licence(one)] == []
    assert licences.PAGE.read_text(encoding="utf-8") == licences.page()
