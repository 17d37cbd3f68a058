"""Hostile values in every field of the app's forms: `python -m tests.fuzz.forms [VALUES]`.

Each value goes the way of a filled form: its checks, the spec, the command's words and the real
parser. Whatever is accepted must come out of the parser as the spec that was shown, with every
path inside the allowed folders, and the command's text must be printable.
"""

import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from multiprocessing import Pool
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cyclopts import App

from cutaway.app import forms, new_run
from cutaway.catalog import VERBS
from cutaway.cli.main import app
from cutaway.cli.verbs import mark_text
from cutaway.core.errors import CutawayError
from cutaway.core.spec import Spec, build_spec
from cutaway.recipe.result import command_line, command_words

SEPARATORS = (",", ";", "+", "=", ":", "?", "&", " ", "\n", "\r\n", "\t", "\0", "|", "--", "/", "")
STARTS = ("", "-", "--", "---", "--no-", "@", "=", " --", "\n--", "\u2013", "\u2014", "hf:", "gen:")
WORDS = (
    "m", "0", "-1", "3", "1e309", "nan", "1.5", "none", "None", "null", "true", "all", "auto", "",
    " ", "[1, 2]", '["a"]', "{}", '{"a": 1}', "$(id)", "`id`", "; id", "| id", "'", '"', "\\", "*",
    "~", "\x1b[31m", "\x1b]0;x\x07", "\x9b", "\x7f", "\u202e", "\u2028", "\ud800", "\udcff",
    "ä", "😀", "%s", "--", "-h", "--help", "--version", "--json", "--quiet", "--dry-run",
    "--print-spec", "__complete", "../secret", "../secret/train.csv", "./../secret",
    "hf:../secret", "base+../secret", "x=../secret", "file://{secret}", "{secret}",
    "{secret}/train.csv", "link", "link/train.csv", "in.csv", "x" * 300,
)  # fmt: skip
NUMBERS = (0, 1, 2, 3, 5, 10, -1, 2**31, 2**63, 0.5, 1e-9, 1.0, float("inf"), float("nan"), True)


@dataclass
class Place:
    """The folder where the app was started, and a secret beside it."""

    root: Path
    flags: tuple[str, ...] = ()
    accepted: int = 0
    refused: int = 0
    seen: set[str] = field(default_factory=set)

    @property
    def runs(self) -> Path:
        """The runs folder."""
        return self.root / "place" / "runs"

    def make(self) -> None:
        """Write the files."""
        for folder in ("place/runs/made", "secret"):
            (self.root / folder).mkdir(parents=True)
        for name in ("place/in.csv", "secret/train.csv"):
            (self.root / name).write_text("text,label\na,0\n")
        (self.root / "place" / "link").symlink_to(self.root / "secret")

    def text(self, rng: random.Random) -> str:
        """One hostile text."""
        pieces = [rng.choice(STARTS)]
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
            pieces += [rng.choice((*WORDS, *self.flags)), rng.choice(SEPARATORS)]
        text = "".join(pieces[:-1] if rng.random() < 0.8 else pieces)
        return text.replace("{secret}", str(self.root / "secret"))


def draw(place: Place, spec: type[Spec], name: str, rng: random.Random) -> Any:
    """What a form could hold in this field, and what a changed page could send for it."""
    kind, _ = forms.unwrap_optional(spec.model_fields[name].annotation)
    if kind in (int, float, bool) and rng.random() < 0.7:
        return rng.choice(NUMBERS)
    text = place.text(rng)
    is_list = getattr(kind, "__origin__", None) is tuple
    return forms.split_entries(text) if is_list else text.strip() or None


def valid_start(spec: type[Spec]) -> dict[str, Any]:
    """A form that is accepted: its required fields filled."""
    needed = {n: "x" for n, info in spec.model_fields.items() if info.is_required()}
    return {**needed, **STARTING_POINTS.get(spec.__name__, {})}


# Forms that need more than their required fields.
STARTING_POINTS: dict[str, dict[str, Any]] = {"NextwordSpec": {"task": "sst2"}}


def fuzz(verb: str, place: Place, values: int, seed: int) -> None:
    """`values` hostile values for each field of the verb's form."""
    rng, cls = random.Random(f"{verb} {seed}"), VERBS[verb].spec_class
    shown = [name for name in cls.model_fields if forms.is_shown(cls, name)]
    place.flags = tuple(
        f"--{name.strip('_').replace('_', '-')}" + rng.choice(("", "=x", " x", f"={place.root}/x"))
        for name in cls.model_fields
    )
    for _ in range(values):
        form = valid_start(cls)
        if "chat" in cls.model_fields and rng.random() < 0.5:
            form["chat"] = True
        for name in rng.sample(shown, len(shown)):
            tried = {**form, name: draw(place, cls, name, rng)}
            try:
                # As `form_spec`, without checking the paths of the other fields again.
                forms.check_readable_paths({name: tried[name]}, [Path.cwd(), place.runs])
                resolved = forms.resolve_output_paths(tried, place.runs / "made")
                build_spec(cls, forms.provided_values(cls, resolved))
            except CutawayError as error:
                place.refused += 1
                assert str(error).strip()
            else:
                place.accepted += 1
                place.seen.add(name)
                form = tried
        check(verb, form, place)


def check(verb: str, form: dict[str, Any], place: Place) -> None:
    """An accepted form is the command that was shown and nothing else."""
    spec = new_run.form_spec(verb, form, place.runs)
    words = command_words(verb, spec)
    assert parse(words) == spec, f"{form!r} becomes {words!r}"
    assert command_line(verb, spec).isprintable(), form
    options: Any = spec
    assert (options.runs, options.engine) == (str(place.runs), "local"), form
    for name in forms.OUTPUT_FIELDS & set(type(spec).model_fields):
        out = getattr(spec, name)
        assert out is None or Path(out).resolve().is_relative_to(place.runs / "made"), form
    for name, value in form.items():
        if name not in forms.OUTPUT_FIELDS:
            for text in value if isinstance(value, list) else [value]:
                assert not names_secret(str(text), place), f"{name} {text!r} is outside"


def names_secret(text: str, place: Place) -> bool:
    """Whether a part of the text is a path to the secret folder."""
    for piece in re.split(r"[,;+=:?&\n]", text):
        try:
            path = Path(piece.strip()).expanduser()
            if path.resolve().is_relative_to(place.root / "secret") and path.exists():
                return True
        except (OSError, ValueError, RuntimeError):
            continue
    return False


def parse(words: list[str]) -> Spec:
    """The spec that the command line makes of these words; no other option may be set."""
    _, bound, _ = app.parse_args(mark_text(words), exit_on_error=False, print_error=False)
    assert set(bound.kwargs) <= {"spec", "output"} and bound.kwargs.get("output") is None
    spec: Spec = bound.kwargs["spec"]
    return spec


@contextmanager
def quick_parser() -> Iterator[None]:
    """Keep the parser's table of arguments, which it makes anew for each command otherwise."""
    assemble, kept = App.assemble_argument_collection, dict[int, Any]()

    def once(self: App, **options: Any) -> Any:
        table = kept.setdefault(id(self), None) or assemble(self, **options)
        kept[id(self)] = table
        for argument in table:
            argument.tokens = []
            argument._value, argument._marked = type(argument).__attrs_attrs__._value.default, False
        return table

    with patch.object(App, "assemble_argument_collection", once):
        yield


def fuzz_verb(job: tuple[str, int, int]) -> str:
    """Fuzz one verb's form in a folder of its own; a line with what was counted."""
    verb, values, seed = job
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder).resolve())
        place.make()
        with chdir(place.root / "place"), quick_parser():
            fuzz(verb, place, values, seed)
    seconds = time.monotonic() - started
    return f"{verb}: {place.accepted:,} accepted, {place.refused:,} refused, {seconds:.0f} s"


def main(values: int = 10_000) -> None:
    """Fuzz all forms, two at a time."""
    with Pool(2) as pool:
        for line in pool.imap(fuzz_verb, [(verb, values, 0) for verb in VERBS]):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
