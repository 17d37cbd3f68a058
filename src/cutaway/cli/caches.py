"""`cache ls|size|prune|verify`: the activation cache."""

from typing import Annotated

from cyclopts import App, Parameter

from cutaway.cli.talk import print_json, print_result

JsonFlag = Annotated[bool, Parameter(help="As JSON on stdout.")]


def register(app: App) -> None:
    """Add the `cache` group."""
    group = App(name="cache", help="The activation cache (its folder: CUTAWAY_HOME).")
    for command in (ls, size, prune, verify):
        group.command(command)
    app.command(group)


def ls(*, json: JsonFlag = False) -> None:
    """What is kept: model, texts, columns, size, last use."""
    from cutaway.store.cache import list_entries

    found = list_entries()
    if json:
        print_json([entry.plain() for entry in found])
    else:
        print_result("\n".join(entry.line() for entry in found) or "The cache is empty.")


def size(*, json: JsonFlag = False) -> None:
    """How much disk the cache takes."""
    from cutaway.store.cache import cache_size as cache_size
    from cutaway.store.home import cache_folder

    total = cache_size()
    print_json({"bytes": total, "folder": str(cache_folder())}) if json else print_result(
        f"{total / 2**20:,.1f} MB in {cache_folder()}"
    )


def prune(
    *, max_gb: float | None = None, older_than_days: float | None = None, digest: str | None = None,
    everything: Annotated[bool, Parameter(name="--all")] = False, json: JsonFlag = False,
) -> None:  # fmt: skip
    """Remove what was not used for longest, until the wish is met.

    Parameters
    ----------
    max_gb
        Keep at most this much.
    older_than_days
        Remove what was not used for so many days.
    digest
        Remove this entry (first letters are enough).
    everything
        Remove all entries.
    """
    from cutaway.store.cache import prune as prune_cache

    limit = 0 if everything else None if max_gb is None else _bytes(max_gb)
    gone = prune_cache(max_bytes=limit, older_than_days=older_than_days, digest=digest)
    if json:
        print_json([entry.plain() for entry in gone])
    else:
        print_result(
            f"{len(gone)} entries removed, {sum(e.bytes for e in gone) / 2**20:,.1f} MB freed."
        )


def _bytes(max_gb: float) -> int:
    from cutaway.core.errors import BadSpec

    # Below 0, and with what is no number, every shelf would go.
    if not 0 <= max_gb < 1e9:
        raise BadSpec(f"--max-gb must be a number of gigabytes >= 0, got {max_gb!r}.")
    return int(max_gb * 2**30)


def verify(*, repair: bool = False, json: JsonFlag = False) -> None:
    """Read everything back against its checksums.

    Parameters
    ----------
    repair
        Drop what is damaged, so that it is computed again when next needed.
    """
    from cutaway.core.errors import Corrupt
    from cutaway.store.cache import verify as verify_cache

    problems = verify_cache(repair=repair)
    if json:
        print_json([{"path": str(p.path), "reason": p.reason} for p in problems])
    elif not problems:
        print_result("Everything is as it was written.")
    elif repair:
        print_result("\n".join(f"dropped: {p.path} ({p.reason})" for p in problems))
    if problems and not repair:
        said = "; ".join(f"{p.path}: {p.reason}" for p in problems)
        raise Corrupt(
            f"{len(problems)} damaged files: {said}. Mend with: cutaway cache verify --repair"
        )
