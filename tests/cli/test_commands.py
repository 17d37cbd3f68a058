from typing import get_args

import pytest

from cutaway.catalog import VERBS
from cutaway.cli import commands
from cutaway.cli.verbs import command_path


@pytest.mark.parametrize("words", VERBS)
def test_every_verb_has_a_command_with_its_spec_and_help(words: str) -> None:
    module, name = command_path(VERBS[words]).split(":")
    command = getattr(commands, name)
    assert module == commands.__name__ and command.__doc__ == VERBS[words].help
    assert get_args(command.__annotations__["spec"])[0] is VERBS[words].spec_class


def test_an_unknown_command_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'prob'"):
        _ = commands.prob
