import pytest

from cutaway.core.textset import TextSet
from cutaway.models.load import open_model
from tests.tiny import SENTENCES, tiny


@pytest.fixture(scope="session")
def tiny_lm(tmp_path_factory):
    """Open a tiny model of a family, once per session."""
    opened = {}

    def get(family: str, **options):
        key = (family, *sorted(options.items()))
        if key not in opened:
            folder = tmp_path_factory.mktemp("models") / family
            opened[key] = open_model(str(tiny(family, folder)), check=False, **options)
        return opened[key]

    return get


@pytest.fixture
def texts() -> TextSet:
    """Sentences of mixed length."""
    rows = [*SENTENCES, "Yes.", "No", *(" ".join(SENTENCES[i : i + 2]) for i in range(4))]
    return TextSet("sentences", tuple(rows))
