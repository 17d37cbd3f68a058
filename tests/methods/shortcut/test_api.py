"""`cutaway.shortcut`: the Python names."""

import inspect

import pytest

import cutaway
from cutaway.methods.shortcut import api


def test_every_promised_name_is_there() -> None:
    assert {"fit", "eval", "exit", "generate", "lens", "load", "import_maps"} <= set(dir(api))
    assert cutaway.shortcut.fit.__name__ == "fit"
    with pytest.raises(AttributeError, match="contest2"):
        api.contest2  # noqa: B018


def test_signatures_show_the_fields_of_the_spec() -> None:
    parameters = inspect.signature(api.exit).parameters
    assert parameters["agreement"].default is None
    assert parameters["confidence"].default == ("gap", "max", "entropy")


def test_loading_checks_the_model(maps_file, fitted, toy) -> None:
    assert api.load(maps_file, toy).kinds == api.load(maps_file).kinds
