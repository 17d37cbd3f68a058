"""A toy language model with every kind of map, fitted once for all tests of shortcut."""

import pytest

from cutaway.methods.shortcut import api as shortcut
from cutaway.methods.shortcut.maps import load_maps
from cutaway.methods.shortcut.sample import SampleRequest, load_sample_texts, take_sample
from cutaway.methods.shortcut.spec import EvalSpec
from cutaway.models.load import open_model
from cutaway.recipe.life_cycle import Context
from tests.methods.shortcut.toy import EVERY_KIND, OTHER, TEXTS
from tests.tiny import toy_model


@pytest.fixture(scope="package", autouse=True)
def _package_home(tmp_path_factory):
    """Fixtures of the package use the cache of the tests too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUTAWAY_HOME", str(tmp_path_factory.getbasetemp() / "home"))
        yield


@pytest.fixture(scope="package")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shortcut")


@pytest.fixture(scope="package")
def toy(folder):
    return open_model(str(toy_model(folder / "toy")))


@pytest.fixture(scope="package")
def maps_file(folder):
    return str(folder / "maps.safetensors")


@pytest.fixture(scope="package")
def options(folder, toy):
    """What every verb gets: the model, the runs folder, no messages."""
    return {"model": toy, "runs": str(folder / "runs"), "quiet": True}


@pytest.fixture(scope="package")
def fitted(options, maps_file):
    """The run that fitted every kind of map."""
    return shortcut.fit(**options, text=TEXTS, out=maps_file, positions_per_text=3, **EVERY_KIND)


@pytest.fixture(scope="package")
def maps(fitted, maps_file, toy):
    return load_maps(maps_file, toy)


@pytest.fixture(scope="package")
def evaluated(options, fitted, maps_file):
    """Every kind of map evaluated on the texts of the fit, with parts and schedules."""
    return shortcut.eval(
        **options, text=TEXTS, positions_per_text=3, schedules=True, shortcut=maps_file
    )


@pytest.fixture(scope="package")
def other_sample(toy):
    """Two examples per text of the other texts, with their stored states."""
    spec = EvalSpec(model=toy.name, text="other", shortcut="-", positions_per_text=2)
    texts, skipped = load_sample_texts(toy, spec, {"other": OTHER})
    return take_sample(SampleRequest(spec, toy, texts, skipped), Context())
