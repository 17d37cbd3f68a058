"""The command function of each verb, made when the verb is used: `commands.graft_learn`."""

from collections.abc import Callable
from typing import Annotated, Any

from cyclopts import Parameter
from pydantic import BeforeValidator

from cutaway.catalog import VERBS
from cutaway.cli import verbs
from cutaway.cli.output import OutputOptions


def unmark_values(values: Any) -> Any:
    """The values of a spec without the marks."""
    if isinstance(values, dict):
        return {name: unmark_values(value) for name, value in values.items()}
    if isinstance(values, list):
        return [unmark_values(value) for value in values]
    return values.removeprefix(verbs.TEXT_MARK) if isinstance(values, str) else values


def __getattr__(name: str) -> Callable[..., None]:
    """The command of a verb, with `_` for a space; cyclopts reads its annotations."""
    verb = VERBS.get(name.replace("_", " "))
    if verb is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def command(*, spec: Any, output: Any = None) -> None:
        verbs.run_verb(verb, spec, output or OutputOptions())

    command.__doc__ = verb.help
    command.__annotations__ = {
        "spec": Annotated[verb.spec_class, Parameter(name="*"), BeforeValidator(unmark_values)],
        "output": Annotated[OutputOptions | None, Parameter(name="*")],
        "return": None,
    }
    return command
