"""Generated labelled text: `gen:NAME?key=value,...`.

Each grammar is one TOML file of templates and lexicons in `grammars/`. The lexicon is dealt out
between train, dev and test, so that no content word of one part occurs in another: a
classifier that only knows words is at chance on test, one that knows what words mean is not.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from cutaway.core.errors import BadSpec
from cutaway.core.lookup import lookup
from cutaway.core.spec import build_spec, parse_toml
from cutaway.core.textset import TextSet
from cutaway.data.arithmetic_gen import generate_arithmetic
from cutaway.data.generator_options import GeneratorOptions
from cutaway.data.grammar import Grammar, generate_from_grammar

# More digits than any count has stay text, and are refused as such.
INTEGER = re.compile(r"-?[0-9]{1,18}")


def generate(source: str, *, seed: int = 0) -> TextSet:
    """The text set that `gen:NAME?key=value,...` asks for; the same one every time."""
    name, _, query = source.removeprefix("gen:").partition("?")
    generator = lookup(GENERATORS, name, kind="generator")
    return generator.make(source, {"seed": seed, **parse_options(query)})


def parse_options(query: str) -> dict[str, Any]:
    """The options in `n=500,seed=3`, as numbers where they are numbers."""
    found: dict[str, Any] = {}
    for item in filter(None, query.replace("&", ",").split(",")):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not key:
            raise BadSpec(f"gen: {item!r} is not an option. Write key=value, as in n=500.")
        found[key] = int(value) if INTEGER.fullmatch(value) else value
    return found


@cache
def load_grammar(name: str) -> Grammar:
    """The grammar that ships under this name."""
    text = files("cutaway.data").joinpath("grammars", f"{name}.toml").read_text("utf-8")
    return build_spec(Grammar, {"name": name, **parse_toml(text)})


@dataclass(frozen=True)
class TextGenerator:
    """What a generated set is about, and how it is made."""

    description: str
    make: Callable[[str, Mapping[str, Any]], TextSet]


def _from_grammar(source: str, values: Mapping[str, Any]) -> TextSet:
    name = source.removeprefix("gen:").partition("?")[0]
    sizes = build_spec(GeneratorOptions, values)
    return generate_from_grammar(load_grammar(name), source, sizes.parts(), sizes.seed)


GENERATORS = {
    "sentiment": TextGenerator("liked or not: films, food, service, products", _from_grammar),
    "tense": TextGenerator("told in the past or in the present", _from_grammar),
    "number": TextGenerator("the subject is one or many", _from_grammar),
    "topic": TextGenerator("business, cooking, science or sport", _from_grammar),
    "arithmetic": TextGenerator("problems A op B = C; ops, digits, format", generate_arithmetic),
}
