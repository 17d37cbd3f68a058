"""Fixtures of graft: a toy task, and skills learned on it."""

import pytest

from cutaway.methods.graft.learn import resolve
from cutaway.methods.graft.spec import LearnSpec
from cutaway.recipe.life_cycle import Context
from tests.methods.graft.toy import ToyGraft


@pytest.fixture(scope="session")
def toy(tmp_path_factory) -> ToyGraft:
    return ToyGraft(tmp_path_factory.mktemp("graft"))


@pytest.fixture(scope="session", params=["llama", "bert"])
def learned(toy, request):
    """A skill with every baseline, two seeds and two sizes: family, result and file."""
    out = toy.folder / f"{request.param}.safetensors"
    result = toy.learn(request.param, sparsity=(0.02, 0.2), seeds=(0, 1), out=str(out))
    return request.param, result, out


@pytest.fixture(scope="session")
def skill(toy) -> str:
    """The file of a skill with the classes neg and pos."""
    return toy.skill()


@pytest.fixture(scope="session")
def request_of(toy):
    """Resolve `graft learn` on the masked toy model; the models are opened anew each time."""

    def make(**options):
        base, tuned = toy.pair("bert")
        given = {"base": base, "tuned": tuned, "task": toy.task, "data": toy.data, "text": "none"}
        return resolve(LearnSpec(**given | options), Context())

    return make
