"""Python functions made from the catalog: a verb's keyword arguments are the fields of its spec.

Each function has a real signature and documentation, so `help(cutaway.probe)` and editors show
every keyword with its type and default. `docs/stubs.py` writes the same signatures as stub files
for type checkers.
"""

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from cutaway.catalog import VERBS, Verb
from cutaway.console import Console
from cutaway.core.errors import BadSpec
from cutaway.core.spec import Spec, build_spec
from cutaway.recipe import life_cycle
from cutaway.recipe.artefact_handle import InFile
from cutaway.recipe.objects import name_objects


def python_function(verb: Verb) -> Callable[..., Any]:
    """The verb as a function with the spec's fields as keyword arguments."""
    cls = verb.spec_class
    single = [name for name in verb.objects if not takes_several(cls, name)]

    def call(*args: Any, quiet: bool = False, **options: Any) -> Any:
        if args:
            options = {verb.first: _first(verb, args), **options}
        options = {name: with_file_names(name, value) for name, value in options.items()}
        named, objects = name_objects(options, verb.objects, single=single)
        spec: Any = build_spec(cls, named)
        return life_cycle.run(verb, spec, life_cycle.Context(Console(quiet=quiet), objects))

    name = verb.name.rpartition(".")[2]
    call.__name__ = call.__qualname__ = name
    call.__module__ = "cutaway"
    call.__doc__ = documentation(verb)
    call.__signature__ = signature(verb)  # type: ignore[attr-defined]
    return call


def with_file_names(option: str, value: Any) -> Any:
    """The value of an option with paths, loaded maps, skills and Fishers as names of files."""
    if type(value) in (list, tuple):
        return type(value)(with_file_names(option, one) for one in value)
    if isinstance(value, Path):
        return str(value)
    if not isinstance(value, InFile):
        return value
    if value.file is None:
        raise BadSpec(f"{option}: this {type(value).__name__} is in no file. Save it first.")
    return str(value.file)


def group_functions(group: str) -> dict[str, Verb]:
    """The verbs offered as `cutaway.<group>.<name>`, by name."""
    prefix = f"{group}."
    return {v.name.removeprefix(prefix): v for v in VERBS.values() if v.name.startswith(prefix)}


def group_function(group: str, name: str) -> Callable[..., Any]:
    """`cutaway.<group>.<name>`; AttributeError when there is no such verb."""
    verb = group_functions(group).get(name)
    if verb is None:
        raise AttributeError(f"module 'cutaway.{group}' has no attribute {name!r}")
    return python_function(verb)


def takes_several(cls: type[Spec], field: str) -> bool:
    """Whether a field holds several values."""
    return get_origin(cls.model_fields[field].annotation) is tuple


def signature(verb: Verb) -> inspect.Signature:
    """The keywords of a verb: required ones first, `quiet` last."""
    fields = verb.spec_class.model_fields
    order = sorted(fields, key=lambda name: (name != verb.first, not fields[name].is_required()))
    parameters = [_parameter(name, fields[name], first=name == verb.first) for name in order]
    quiet = inspect.Parameter(
        "quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=bool
    )
    return inspect.Signature([*parameters, quiet])


def documentation(verb: Verb) -> str:
    """The help of a verb: what it does, then each keyword with its documentation."""
    cls = verb.spec_class
    lines = [verb.help, "", inspect.cleandoc(cls.__doc__ or ""), "", "Parameters", "----------"]
    for name, info in cls.model_fields.items():
        lines += [name, f"    {' '.join((info.description or '').split())}"]
        if name in verb.objects:
            lines[-1] += " Python objects are accepted too."
    return "\n".join([*lines, "quiet", "    Print no progress and no messages."])


def _parameter(name: str, info: FieldInfo, *, first: bool) -> inspect.Parameter:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if first else inspect.Parameter.KEYWORD_ONLY
    default = info.get_default(call_default_factory=True)
    if info.is_required():
        default = inspect.Parameter.empty
    return inspect.Parameter(name, kind, default=default, annotation=accepted_type(info))


def accepted_type(info: FieldInfo) -> Any:
    """The type that a keyword accepts: a field of several values also takes a single one."""
    if get_origin(info.annotation) is not tuple:
        return info.annotation
    one = get_args(info.annotation)[0]
    return one | Sequence[one]  # type: ignore[valid-type]


def _first(verb: Verb, args: tuple[Any, ...]) -> Any:
    """The value of the first field: one argument, or several if the field takes several."""
    several = bool(verb.first) and takes_several(verb.spec_class, verb.first)
    if not verb.first or (len(args) > 1 and not several):
        allowed = (
            f"only {verb.first!r} may come without its name" if verb.first else "give them by name"
        )
        raise TypeError(f"cutaway.{verb.name}() got {len(args)} positional arguments: {allowed}.")
    return args[0] if len(args) == 1 else list(args)
