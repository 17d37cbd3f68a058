"""Sets on the Hugging Face hub, through the `datasets` library."""

import socket
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.core.errors import BadSpec, Missing
from cutaway.data.part_names import part_from_name
from cutaway.data.table import Table, concat_tables, truncate

# The hub keeps a copy of every set that once needed a script, as plain parquet.
PARQUET_BRANCH = "refs/convert/parquet"

HubParts = Mapping[str, tuple[str, ...]]
DatasetOpener = Callable[..., Any]


@dataclass(frozen=True)
class HubId:
    """A set's address on the hub."""

    name: str
    config: str | None = None
    split: str | None = None


def parse_hub_id(source: str) -> HubId:
    """The address in `hf:ID[/CONFIG][:SPLIT]`; BadSpec shows the form."""
    address, _, split = source.removeprefix("hf:").partition(":")
    pieces = address.split("/")
    if not all(pieces) or len(pieces) > 3:
        raise BadSpec(
            f"{source!r} is no hub address. Write hf:NAMESPACE/NAME, with /CONFIG and :SPLIT where "
            "needed, as in hf:nyu-mll/glue/sst2:train."
        )
    config = pieces[2] if len(pieces) == 3 else None
    return HubId("/".join(pieces[:2]), config, split or None)


def read_hub(
    address: HubId,
    *,
    revision: str | None = None,
    offline: bool = False,
    parts: HubParts | None = None,
    instead: str = "a file or folder with the same columns",
    open_set: DatasetOpener | None = None,
) -> tuple[Table, NDArray[np.str_] | None]:
    """The rows of a set on the hub and their parts; Missing says what else would do.

    `parts` says which splits make which part; by their names otherwise. `instead` is what
    Missing proposes. `open_set` stands in for `datasets.load_dataset` in tests.
    """
    try:
        splits = _fetch(address, revision, offline, open_set or _load_dataset)
    except Exception as error:  # the library's own, and its network's, have no common root
        raise Missing(
            f"The set {address.name!r} can't be fetched from the hub: {_error_text(error)}. "
            f"Without a network, give {instead}."
        ) from None
    origin = "/".join(filter(None, ["hf:" + address.name, address.config]))
    if address.split is not None:
        return _split_table(f"{origin}:{address.split}", splits[address.split]), None
    chosen = _parts_by_split(origin, list(splits), parts)
    tables = [_split_table(f"{origin}:{split}", splits[split]) for split in chosen]
    whole = concat_tables(origin, tables)
    left_out = sorted(set(splits) - set(chosen))
    note = (f"splits left out: {', '.join(left_out)}",) if left_out else ()
    named = Table(**{**vars(whole), "notes": whole.notes + note})
    if all(part is None for part in chosen.values()):
        return named, None
    return named, np.repeat([str(part) for part in chosen.values()], [len(t) for t in tables])


def _error_text(error: Exception) -> str:
    """An error in its own words, with those of its cause: `datasets` hides what happened there."""
    causes = [error, *([error.__cause__] if error.__cause__ else [])]
    return ": ".join(truncate(one, 160).rstrip(".") or type(one).__name__ for one in causes)


def _parts_by_split(
    origin: str, splits: list[str], parts: HubParts | None
) -> dict[str, str | None]:
    """The splits to read with the part each belongs to; a single unnamed one has no part."""
    if parts:
        wanted = {split: part for part, names in parts.items() for split in names}
        lacking = sorted(set(wanted) - set(splits))
        if lacking:
            raise Missing(
                f"{origin} has no split {lacking[0]!r}. It has: {', '.join(splits)}. "
                "Has the set changed on the hub?"
            )
        return dict(wanted)
    known = {split: part_from_name(split) for split in splits if part_from_name(split)}
    if len(set(known.values())) < len(known):
        raise BadSpec(
            f"{origin} has several splits for one part: {', '.join(splits)}. Name one: {origin}:"
            f"{splits[0]}"
        )
    if len(known) == 1 and len(splits) == 1:
        return {splits[0]: None}
    return known or {splits[0]: None}


def _split_table(origin: str, rows: Any) -> Table:
    """One split as a table, class numbers with their names, hidden labels as missing."""
    columns, names = {}, {}
    for name, feature in rows.features.items():
        values = list(rows[name])
        legend = getattr(feature, "names", None) or getattr(
            getattr(feature, "feature", None), "names", None
        )
        if legend:
            names[name] = tuple(map(str, legend))
            values = [_decode_label(value, names[name]) for value in values]
        columns[name] = values
    return Table(origin, columns, names=names)


def _decode_label(value: Any, legend: tuple[str, ...]) -> Any:
    """-1 is how sets on the hub hide a label; lists of class numbers get their names."""
    if isinstance(value, list):
        return [legend[item] for item in value]
    return None if value is None or value < 0 else value


def _fetch(
    address: HubId, revision: str | None, offline: bool, open_set: DatasetOpener
) -> Mapping[str, Any]:
    """The splits of a set by name."""
    what = {"path": address.name, "name": address.config}
    if address.split is None:
        return dict(_open_or_parquet(open_set, what, revision, offline))
    return {
        address.split: _open_or_parquet(
            open_set, what | {"split": address.split}, revision, offline
        )
    }


def _open_or_parquet(
    open_set: DatasetOpener, what: dict[str, Any], revision: str | None, offline: bool
) -> Any:
    """The set; its parquet copy where it is kept as a script, which is never run."""
    try:
        return open_set(**what, revision=revision, offline=offline)
    except RuntimeError as error:
        if "script" not in str(error).lower() or revision is not None:
            raise
        return open_set(**what, revision=PARQUET_BRANCH, offline=offline)


def _load_dataset(*, offline: bool, **what: Any) -> Any:
    import datasets

    with _offline_mode(offline or not _hub_reachable()):
        return datasets.load_dataset(**what)


def _hub_reachable() -> bool:
    """Whether the hub's name can be looked up; `datasets` itself retries for half a minute."""
    import huggingface_hub.constants as constants

    if urllib.request.getproxies():
        return True
    host = constants.ENDPOINT.split("://")[-1].split("/")[0].split(":")[0]
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True


@contextmanager
def _offline_mode(offline: bool) -> Iterator[None]:
    """Both libraries told to use only what is cached, and told back."""
    import datasets.config
    import huggingface_hub.constants

    # Their environment variable is read once at import, so a later wish has to go in here.
    places = (datasets.config, huggingface_hub.constants)
    before = [place.HF_HUB_OFFLINE for place in places]
    try:
        for place, value in zip(places, before, strict=True):
            place.HF_HUB_OFFLINE = offline or value
        yield
    finally:
        for place, value in zip(places, before, strict=True):
            place.HF_HUB_OFFLINE = value
