"""Law: whatever stands in an input, the reader gives a value or one of our errors."""

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from cutaway.core.errors import CutawayError
from tests.fuzz.loaders import LOADERS
from tests.fuzz.mutate import mutants

# Cut up, so that several workers share the ten thousand of one reader.
PARTS = 4
MEMORY = Path("/dev/shm")


@pytest.fixture
def place(tmp_path) -> Iterator[Path]:
    """A folder in memory where there is one: ten thousand files are written to it."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", LOADERS)
def test_a_broken_input_ends_in_a_value_or_in_one_of_our_errors(name, part, place) -> None:
    loader = LOADERS[name]
    refused = 0
    for number, data in enumerate(mutants(loader.seeds, loader.cases // PARTS, seed=part)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                loader.read(data, place)
            except CutawayError as error:
                refused += 1
                assert str(error).strip(), f"case {number}: an error without a word: {data!r}"
            except Exception as error:
                raise AssertionError(f"{name}, part {part}, case {number}: {data!r}") from error
    # The runs folder lists what is broken instead of refusing it.
    assert refused > 0 or name == "run", "no case was wrong: the fuzzer does nothing"


@pytest.mark.parametrize("name", LOADERS)
def test_the_seeds_themselves_are_read(name, tmp_path) -> None:
    for seed in LOADERS[name].seeds:
        LOADERS[name].read(seed, tmp_path)
