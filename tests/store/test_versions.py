"""Versions in artefacts, and what is said when they are used under others."""

import pytest
import torch

from cutaway.store import versions as module
from cutaway.store.artefacts import load_artefact, save_artefact
from cutaway.store.versions import COMPARED, report_other_versions, versions


def test_every_artefact_records_the_versions(tmp_path) -> None:
    path = save_artefact(tmp_path / "a.safetensors", {"x": torch.zeros(2)}, {"kind": "k"})
    found = load_artefact(path)
    assert found.versions == versions()
    assert set(COMPARED) <= set(found.versions)
    assert found.meta == {"kind": "k"}


@pytest.mark.parametrize("package", COMPARED)
def test_another_version_is_reported_with_both(package, tmp_path, capsys) -> None:
    report_other_versions(tmp_path / "a", versions() | {package: "0.0.1"})
    said = capsys.readouterr().err
    assert f"{package} 0.0.1" in said
    assert versions()[package] in said


def test_the_same_version_other_packages_and_old_files_are_not_reported(tmp_path, capsys) -> None:
    local = versions() | {"torch": versions()["torch"].partition("+")[0] + "+other"}
    for made in (versions(), local, versions() | {"numpy": "0.0.1"}, {}):
        report_other_versions(tmp_path / "a", made)
    assert capsys.readouterr().err == ""


def test_a_package_that_is_missing_is_recorded_as_such(monkeypatch) -> None:
    monkeypatch.setattr(module, "PACKAGES", ("no-such-package",))
    assert versions()["no-such-package"] == "not installed"
