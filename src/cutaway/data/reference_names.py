"""The names of the probing reference's files and logs in ours: a table that users can extend."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cutaway.core.errors import BadData, BadSpec, Missing
from cutaway.core.lookup import suggestion
from cutaway.core.spec import parse_toml
from cutaway.data.files import read_text
from cutaway.home import expand_path

TABLE_FILE = Path(__file__).with_name("reference_names.toml")
NAME_TABLES = ("classifier", "data", "model")
TABLES = (*NAME_TABLES, "blocks")


@dataclass(frozen=True)
class ReferenceNames:
    """Our name for each of the reference's names; names that are not in the table stay."""

    tables: Mapping[str, Mapping[str, Any]]

    def find(self, table: str, name: str) -> Any:
        """Our entry for a name, None if the table has none."""
        return self.tables[table].get(_normalise(name))

    def name(self, table: str, name: str) -> str:
        """Our name, or the given one if the table has none; a name of ours stays."""
        found = self.find(table, name)
        return name if found is None else str(found)


@cache
def known_names() -> ReferenceNames:
    """The table that comes with the package."""
    return ReferenceNames(_parse(TABLE_FILE, TABLE_FILE.read_text(encoding="utf-8")))


def read_names(path: str | Path | None) -> ReferenceNames:
    """The known names, with those of the user's file before them."""
    if path is None:
        return known_names()
    path = expand_path(path)
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        raise Missing(f"No table of names at {str(path)!r} ({error}). Check --names.") from None
    own = _parse(path, text)
    return ReferenceNames({t: {**known_names().tables[t], **own[t]} for t in TABLES})


def _parse(path: Path, text: str) -> dict[str, dict[str, Any]]:
    try:
        given = parse_toml(text)
    except BadSpec as error:
        raise BadData(f"{path.name}: {error}") from None
    for table in given:
        if table not in TABLES:
            hint = suggestion(table, TABLES)
            raise BadData(
                f"{path.name}: unknown table [{table}]. {hint}Known: {', '.join(TABLES)}."
            )
    return {table: _entries(path, table, given.get(table, {})) for table in TABLES}


def _entries(path: Path, table: str, entries: Any) -> dict[str, Any]:
    blocks = table == "blocks"
    words = "a positive number" if blocks else "a name in quotes"
    if not isinstance(entries, Mapping):
        raise BadData(f'{path.name}: [{table}] must be a table of lines such as "LDA" = "lda".')
    for name, value in entries.items():
        fits = type(value) is int and value > 0 if blocks else isinstance(value, str) and value
        if not fits:
            raise BadData(
                f"{path.name}: [{table}] {name!r} is {value!r}, expected {words}. A name with "
                "spaces or dots must be in quotes."
            )
    return {_normalise(name): value for name, value in entries.items()}


def _normalise(name: str) -> str:
    """Letters and digits only: 'Single Layer' and 'SingleLayer' are one name."""
    return "".join(c for c in name.casefold() if c.isalnum())
