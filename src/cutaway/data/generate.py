"""Generated labelled text: `gen:NAME?key=value,...`.

Each grammar is one TOML file of templates and lexicons in `grammars/`. The lexicon is split
between train, dev and test, so no content word of one part occurs in another: a bag-of-words
classifier is at chance on the test part, one that uses the meaning of words is not.
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

# Longer numbers stay text and are refused by the option's type.
INTEGER = re.compile(r"-?[0-9]{1,18}")


def generate(source: str, *, seed: int = 0) -> TextSet:
    """Generate the text set of `gen:NAME?key=value,...`; the result is deterministic."""
    name, _, query = source.removeprefix("gen:").partition("?")
    generator = lookup(GENERATORS, name, kind="generator")
    return generator.make(source, {"seed": seed, **parse_options(query)})


def parse_options(query: str) -> dict[str, Any]:
    """Parse `n=500,seed=3`; integers become numbers."""
    options: dict[str, Any] = {}
    for item in filter(None, query.replace("&", ",").split(",")):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not key:
            raise BadSpec(f"gen: {item!r} is not an option. Write key=value, as in n=500.")
        options[key] = int(value) if INTEGER.fullmatch(value) else value
    return options


@cache
def load_grammar(name: str) -> Grammar:
    """The bundled grammar of this name."""
    text = files("cutaway.data").joinpath("grammars", f"{name}.toml").read_text("utf-8")
    return build_spec(Grammar, {"name": name, **parse_toml(text)})


@dataclass(frozen=True)
class TextGenerator:
    """A generator: its description, and the function that makes the text set."""

    description: str
    make: Callable[[str, Mapping[str, Any]], TextSet]


def _from_grammar(source: str, values: Mapping[str, Any]) -> TextSet:
    name = source.removeprefix("gen:").partition("?")[0]
    sizes = build_spec(GeneratorOptions, values)
    return generate_from_grammar(load_grammar(name), source, sizes.parts(), sizes.seed)


GENERATORS = {
    "sentiment": TextGenerator("positive or negative: films, food, service", _from_grammar),
    "tense": TextGenerator("past or present tense", _from_grammar),
    "number": TextGenerator("singular or plural subject", _from_grammar),
    "topic": TextGenerator("business, cooking, science or sport", _from_grammar),
    "arithmetic": TextGenerator("problems A op B = C; ops, digits, format", generate_arithmetic),
}
