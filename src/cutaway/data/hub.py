"""Read datasets from the Hugging Face hub with the `datasets` library."""

import re
import socket
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.core.errors import BadSpec, Missing
from cutaway.data.part_names import part_from_name
from cutaway.data.table import Table, concat_tables, truncate

# The hub has a parquet copy of every dataset that needs a loading script.
PARQUET_BRANCH = "refs/convert/parquet"

HubParts = Mapping[str, tuple[str, ...]]
DatasetOpener = Callable[..., Any]


@dataclass(frozen=True)
class HubId:
    """The id of a dataset on the hub, with its configuration and split."""

    name: str
    config: str | None = None
    split: str | None = None


def parse_hub_id(source: str) -> HubId:
    """Parse `hf:ID[/CONFIG][:SPLIT]`."""
    path, _, split = source.removeprefix("hf:").partition(":")
    pieces = path.split("/")
    if len(pieces) > 3 or not all(pieces) or not all(map(_is_hub_name, pieces[:2])):
        raise BadSpec(
            f"{source!r} is not a hub id. Use hf:NAMESPACE/NAME, with /CONFIG and :SPLIT if "
            "needed, as in hf:nyu-mll/glue/sst2:train."
        )
    config = pieces[2] if len(pieces) == 3 else None
    return HubId("/".join(pieces[:2]), config, split or None)


def _is_hub_name(name: str) -> bool:
    """Whether the hub allows a name: letters, digits and `-._`, no path of a disk."""
    fine = re.fullmatch(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?", name)
    return fine is not None and ".." not in name and "--" not in name


def _check_not_local(name: str) -> None:
    """BadSpec for an id that `datasets` would not look for on the hub."""
    from datasets.packaged_modules import _PACKAGED_DATASETS_MODULES

    if name in _PACKAGED_DATASETS_MODULES:
        raise BadSpec(
            f"hf:{name} is the name of a file type, not of a dataset. Give the file's own path."
        )
    if Path(name).exists():
        raise BadSpec(
            f"hf:{name} names a dataset on the hub, but {name!r} is a file or folder here, which "
            f"the datasets library would read instead. To read it, give ./{name}; for the hub's, "
            "run the command in another folder."
        )


def read_hub(
    address: HubId,
    *,
    revision: str | None = None,
    offline: bool = False,
    parts: HubParts | None = None,
    instead: str = "a file or folder with the same columns",
    open_set: DatasetOpener | None = None,
) -> tuple[Table, NDArray[np.str_] | None]:
    """The rows of a dataset on the hub, and their parts.

    `parts` maps each part to its splits; by default they are matched by name. `instead` is the
    alternative that the error message proposes. Tests replace `datasets.load_dataset` by
    `open_set`.
    """
    _check_not_local(address.name)
    try:
        splits = _fetch(address, revision, offline, open_set or _load_dataset)
    except Exception as error:  # errors of the library and of its network have no common base
        raise Missing(
            f"The dataset {address.name!r} can't be fetched from the hub: {_error_text(error)}. "
            f"Without a network, give {instead}."
        ) from None
    origin = "/".join(filter(None, ["hf:" + address.name, address.config]))
    if address.split is not None:
        return _split_table(f"{origin}:{address.split}", splits[address.split]), None
    chosen = _parts_by_split(origin, list(splits), parts)
    tables = [_split_table(f"{origin}:{split}", splits[split]) for split in chosen]
    table = concat_tables(origin, tables)
    if left_out := sorted(set(splits) - set(chosen)):
        table = replace(table, notes=(*table.notes, f"splits left out: {', '.join(left_out)}"))
    if all(part is None for part in chosen.values()):
        return table, None
    return table, np.repeat([str(part) for part in chosen.values()], [len(t) for t in tables])


def _error_text(error: Exception) -> str:
    """The message of an error and of its cause, where `datasets` hides the real problem."""
    causes = [error, *([error.__cause__] if error.__cause__ else [])]
    return ": ".join(truncate(one, 160).rstrip(".") or type(one).__name__ for one in causes)


def _parts_by_split(
    origin: str, splits: list[str], parts: HubParts | None
) -> dict[str, str | None]:
    """The splits to read and the part of each; a single split has no part."""
    if parts:
        wanted = {split: part for part, names in parts.items() for split in names}
        lacking = sorted(set(wanted) - set(splits))
        if lacking:
            raise Missing(
                f"{origin} has no split {lacking[0]!r}. It has: {', '.join(splits)}. "
                "Has the dataset changed on the hub?"
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
    """One split as a table with class names; hidden labels become missing labels."""
    columns, names = {}, {}
    for name, feature in rows.features.items():
        values = list(rows[name])
        features = (feature, getattr(feature, "feature", None))
        class_names = next(filter(None, (getattr(f, "names", None) for f in features)), None)
        if class_names:
            names[name] = tuple(map(str, class_names))
            values = [_decode_label(value, names[name]) for value in values]
        columns[name] = values
    return Table(origin, columns, class_names=names)


def _decode_label(value: Any, class_names: tuple[str, ...]) -> Any:
    """None for -1, which means a hidden label; class names for a list of class indices."""
    if isinstance(value, list):
        return [class_names[item] for item in value]
    return None if value is None or value < 0 else value


def _fetch(
    address: HubId, revision: str | None, offline: bool, open_set: DatasetOpener
) -> Mapping[str, Any]:
    """The splits of a dataset by name."""
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
    """The dataset; its parquet copy if it has a loading script, which is never run."""
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
    """Whether the hub's host name resolves; `datasets` itself would retry for half a minute."""
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
    """Make both libraries use only their caches inside the block."""
    import datasets.config
    import huggingface_hub.constants

    # The environment variable is read once at import, so the constants are changed.
    modules = (datasets.config, huggingface_hub.constants)
    before = [module.HF_HUB_OFFLINE for module in modules]
    try:
        for module, value in zip(modules, before, strict=True):
            module.HF_HUB_OFFLINE = offline or value
        yield
    finally:
        for module, value in zip(modules, before, strict=True):
            module.HF_HUB_OFFLINE = value
