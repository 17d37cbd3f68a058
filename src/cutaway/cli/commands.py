"""The command function of each verb, made when the verb is used: `commands.graft_learn`."""

from collections.abc import Callable
from typing import Annotated, Any

from cyclopts import Parameter

from cutaway.catalog import VERBS
from cutaway.cli import verbs
from cutaway.cli.output import OutputOptions


def __getattr__(name: str) -> Callable[..., None]:
    """The command of a verb, with `_` for a space; cyclopts reads its annotations."""
    verb = VERBS.get(name.replace("_", " "))
    if verb is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def command(*, spec: Any, output: Any = None) -> None:
        verbs.run_verb(verb, spec, output or OutputOptions())

    command.__doc__ = verb.help
    command.__annotations__ = {
        "spec": Annotated[verb.spec_class, Parameter(name="*")],
        "output": Annotated[OutputOptions | None, Parameter(name="*")],
        "return": None,
    }
    return command
