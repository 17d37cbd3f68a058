"""`cache ls|size|prune|verify`: the activation cache."""

from typing import Annotated

from cyclopts import App, Parameter

from cutaway.console import print_json, print_result

JsonFlag = Annotated[bool, Parameter(help="As JSON on stdout.")]


def register(app: App) -> None:
    """Add the `cache` group."""
    group = App(name="cache", help="The activation cache (its folder: CUTAWAY_HOME).")
    for command in (ls, size, prune, verify):
        group.command(command)
    app.command(group)


def ls(*, json: JsonFlag = False) -> None:
    """List the entries: model, texts, columns, size, last use."""
    from cutaway.store.cache import list_entries

    cached = list_entries()
    if json:
        print_json([entry.plain() for entry in cached])
    else:
        print_result("\n".join(entry.line() for entry in cached) or "The cache is empty.")


def size(*, json: JsonFlag = False) -> None:
    """Print the size of the cache on disk."""
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
    """Remove the least recently used entries.

    Parameters
    ----------
    max_gb
        Keep at most this many gigabytes.
    older_than_days
        Remove entries that were not used for this many days.
    digest
        Remove this entry (first characters are enough).
    everything
        Remove all entries.
    """
    from cutaway.store.cache import prune as prune_cache

    limit = 0 if everything else None if max_gb is None else _bytes(max_gb)
    removed = prune_cache(max_bytes=limit, older_than_days=older_than_days, digest=digest)
    if json:
        print_json([entry.plain() for entry in removed])
    else:
        print_result(
            f"{len(removed)} entries removed ({sum(e.bytes for e in removed) / 2**20:,.1f} MB)."
        )


def _bytes(max_gb: float) -> int:
    from cutaway.core.errors import BadSpec

    # A negative limit, or NaN, would remove everything.
    if not 0 <= max_gb < 1e9:
        raise BadSpec(f"--max-gb must be a number of gigabytes >= 0, got {max_gb!r}.")
    return int(max_gb * 2**30)


def verify(*, repair: bool = False, json: JsonFlag = False) -> None:
    """Compare all files with their checksums.

    Parameters
    ----------
    repair
        Remove damaged entries, so that they are computed again when needed.
    """
    from cutaway.core.errors import Corrupt
    from cutaway.store.cache import verify as verify_cache

    problems = verify_cache(repair=repair)
    if json:
        print_json([{"path": str(p.path), "reason": p.reason} for p in problems])
    elif not problems:
        print_result("All files match their checksums.")
    elif repair:
        print_result("\n".join(f"removed: {p.path} ({p.reason})" for p in problems))
    if problems and not repair:
        listed = "; ".join(f"{p.path}: {p.reason}" for p in problems)
        raise Corrupt(
            f"{len(problems)} damaged files: {listed}. Fix with: cutaway cache verify --repair"
        )
