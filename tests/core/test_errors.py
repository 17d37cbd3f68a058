"""The tree drawn on top of the file is the tree there is."""

import re

import pytest

from cutaway.core import errors

CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, Exception)
}


def drawn():
    """Each name in the drawing with the name it hangs on."""
    parents, trail = {}, []
    for line in errors.__doc__.splitlines():
        if found := re.match(r"^    ([│├└─ ]*)([A-Z]\w+)", line):
            depth = len(found[1]) // 4
            trail = [*trail[:depth], found[2]]
            parents[found[2]] = trail[depth - 1] if depth else "Exception"
    return parents


def test_the_drawn_tree_is_the_real_one():
    assert drawn() == {name: value.__base__.__name__ for name, value in CLASSES.items()}


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_knows_its_exit_status_and_keeps_its_message(name):
    wrong_request = issubclass(CLASSES[name], errors.RequestError)
    assert CLASSES[name].exit_status == (2 if wrong_request else 1)
    assert CLASSES[name].__doc__
    with pytest.raises(errors.CutawayError, match="what to do"):
        raise CLASSES[name]("what to do")
