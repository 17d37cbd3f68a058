import pytest

from cutaway.models.lm import LM
from cutaway.models.load import open_model
from tests.tiny import tiny


@pytest.fixture(scope="package")
def lm(tmp_path_factory) -> LM:
    """A tiny model, opened once."""
    return open_model(str(tiny("gpt2", tmp_path_factory.mktemp("lm") / "gpt2")))
