"""`data get` and `data sentences`: write data sets as files."""

import re
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from cutaway.console import print_json, print_result


def register(app: App) -> None:
    """Add the `data` group."""
    group = App(
        name="data", help="Write a known data set, or a random sample of sentences, as files."
    )
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
    """Write a known data set as files, one per split.

    Parameters
    ----------
    name
        A task, `docs`, `gen:NAME`, `hf:ID`, or a file to convert.
    out
        Folder, or a file name such as set.tsv; default: a folder named after the data set.
    seed
        Random seed of generated data and of the rows that --limit keeps.
    limit
        At most this many rows.
    offline
        Use only what is on this machine.
    json
        What was written, as JSON on stdout.
    """
    from cutaway.data.load import load_text_set
    from cutaway.data.write import write_text_set

    texts = load_text_set(name, seed=seed, limit=limit, offline=offline)
    _print_written(write_text_set(texts, out or Path(_folder_name(name))), json)


def _folder_name(name: str) -> str:
    """A folder name for a data set: `hf:glue/sst2` gives `glue-sst2`, a file its stem."""
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
        Number of sentences.
    seed
        Random seed of the sample.
    out
        The file to write (.txt, .tsv, .jsonl, .parquet).
    offline
        Use only what is on this machine.
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
