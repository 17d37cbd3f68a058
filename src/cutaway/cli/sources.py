"""`data get` and `data sentences`: text as files."""

import re
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from cutaway.cli.talk import print_json, print_result


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
    out: Path | None = None,
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
        Folder, or a file name such as set.tsv; a folder of the set's name here unless given.
    seed
        Decides generated sets and the rows of --limit.
    limit
        At most this many rows.
    offline
        Never ask the network.
    json
        What was written, as JSON on stdout.
    """
    from cutaway.data.load import load_text_set
    from cutaway.data.write import write_text_set

    texts = load_text_set(name, seed=seed, limit=limit, offline=offline)
    _print_written(write_text_set(texts, out or Path(_folder_name(name))), json)


def _folder_name(name: str) -> str:
    """A name that is no path: `hf:glue/sst2` gives `glue-sst2`, a file its stem."""
    if Path(name).is_file():
        return Path(name).stem
    return "-".join(re.findall(r"\w+", name.partition(":")[2] or name)) or "set"


def sentences(
    *,
    source: Annotated[str, Parameter(name="--from")] = "docs",
    n: int = 20_000,
    seed: int = 0,
    out: Path = Path("sentences.txt"),
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
    from cutaway.data.write import write_text_set

    _print_written(
        write_text_set(sample_sentences(source, n=n, seed=seed, offline=offline), out), json
    )


def _print_written(written: list[Path], json: bool) -> None:
    if json:
        print_json({"written": [str(path) for path in written]})
    else:
        print_result("\n".join(f"written: {path}" for path in written))
