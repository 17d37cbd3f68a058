"""`data get` and `data sentences`: text as files."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from cutaway.cli.talk import put, put_json


def register(app: App) -> None:
    """Add the `data` group."""
    group = App(name="data", help="Write a known set, or a seeded sample of sentences, as files.")
    group.command(get)
    group.command(sentences)
    app.command(group)


def get(
    name: str,
    /,
    *,
    out: Path,
    seed: int = 0,
    limit: int | None = None,
    offline: bool = False,
    json: bool = False,
) -> None:
    """Write a known set as files: one per part.

    Parameters
    ----------
    name
        A task, `docs`, `gen:NAME`, `hf:ID`, or a file to convert.
    out
        Folder, or a file name such as set.tsv.
    seed
        Decides generated sets and the rows of --limit.
    limit
        At most this many rows.
    offline
        Never ask the network.
    json
        What was written, as JSON on stdout.
    """
    from cutaway.data.load import load
    from cutaway.data.write import write

    _tell(write(load(name, seed=seed, limit=limit, offline=offline), out), json)


def sentences(
    *,
    source: Annotated[str, Parameter(name="--from")] = "docs",
    n: int = 20_000,
    seed: int = 0,
    out: Path,
    offline: bool = False,
    json: bool = False,
) -> None:
    """Write a seeded, deduplicated sample of sentences.

    Parameters
    ----------
    source
        Where documents come from: `docs`, a file, `hf:wikimedia/wikipedia/20231101.en`.
    n
        How many sentences.
    seed
        Decides which.
    out
        The file to write (.txt, .tsv, .jsonl, .parquet).
    offline
        Never ask the network.
    json
        What was written, as JSON on stdout.
    """
    from cutaway.data.sentences import sample_sentences
    from cutaway.data.write import write

    _tell(write(sample_sentences(source, n=n, seed=seed, offline=offline), out), json)


def _tell(written: list[Path], json: bool) -> None:
    if json:
        put_json({"written": [str(path) for path in written]})
    else:
        put("\n".join(f"written: {path}" for path in written))
