"""Generated labelled text: `gen:NAME?key=value,...`.

Each grammar is one TOML file of templates and lexicons in `grammars/`. The lexicon is dealt out
between train, dev and test, so that no content word of one part occurs in another: a
classifier that only knows words is at chance on test, one that knows what words mean is not.
"""

from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from cutaway.core.errors import BadSpec
from cutaway.core.lookup import lookup
from cutaway.core.spec import Spec, build, parse_toml
from cutaway.core.textset import TextSet
from cutaway.data.grammar import Grammar, make


class Sizes(Spec):
    """How much to generate."""

    n: int = 2000
    """Rows in train."""
    dev: int | None = None
    """Rows in dev; a fifth of train unless given."""
    test: int | None = None
    """Rows in test; two fifths of train unless given."""
    seed: int = 0
    """Decides which words go to which part, and the sentences."""

    def parts(self) -> dict[str, int]:
        """The rows of each part; BadSpec where there would be none."""
        dev = max(2, self.n // 5) if self.dev is None else self.dev
        test = max(2, self.n * 2 // 5) if self.test is None else self.test
        sizes = {"train": self.n, "dev": dev, "test": test}
        for part, size in sizes.items():
            if size < 1:
                raise BadSpec(f"gen: {part} must have at least 1 row, got {size}.")
        return sizes


def generate(source: str, *, seed: int = 0) -> TextSet:
    """The text set that `gen:NAME?key=value,...` asks for; the same one every time."""
    name, _, query = source.removeprefix("gen:").partition("?")
    maker = lookup(GENERATORS, name, kind="generator")
    return maker(source, {"seed": seed, **options(query)})


def options(query: str) -> dict[str, Any]:
    """The options in `n=500,seed=3`, as numbers where they are numbers."""
    found: dict[str, Any] = {}
    for item in filter(None, query.replace("&", ",").split(",")):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not key:
            raise BadSpec(f"gen: {item!r} is not an option. Write key=value, as in n=500.")
        found[key] = (
            int(value) if value.lstrip("-").isascii() and value.lstrip("-").isdigit() else value
        )
    return found


@cache
def grammar(name: str) -> Grammar:
    """The grammar that ships under this name."""
    text = files("cutaway.data").joinpath("grammars", f"{name}.toml").read_text("utf-8")
    return build(Grammar, {"name": name, **parse_toml(text)})


def _from_grammar(name: str) -> Callable[[str, Mapping[str, Any]], TextSet]:
    def maker(source: str, values: Mapping[str, Any]) -> TextSet:
        sizes = build(Sizes, values)
        return make(grammar(name), source, sizes.parts(), sizes.seed)

    return maker


GENERATORS: dict[str, Callable[[str, Mapping[str, Any]], TextSet]] = {
    "sentiment": _from_grammar("sentiment"),
}
