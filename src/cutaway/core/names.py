"""Names for headings and tables: paths without their folders."""

from collections.abc import Iterable


def short_name(name: str) -> str:
    """A short name for a heading: the last part of a path."""
    is_path = name.startswith(("/", "./", "../", "~")) or "\\" in name
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return last or name if is_path else name


def short_names(names: Iterable[str]) -> dict[str, str]:
    """A short name for each of these; the full one where two would be the same."""
    full = list(dict.fromkeys(names))
    shown = [short_name(name) for name in full]
    return {
        name: short if shown.count(short) == 1 else name
        for name, short in zip(full, shown, strict=True)
    }
