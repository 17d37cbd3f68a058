"""Short names for long contents: the digests every cache key and address is made of."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any


def digest_text(text: str) -> str:
    """The sha256 of a string, as hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def canonical(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest_json(value: Any) -> str:
    """The sha256 of a value's canonical JSON, as hex."""
    return digest_text(canonical(value))


def digest_rows(rows: Iterable[str]) -> str:
    """The sha256 of a sequence of strings; order and borders between them count."""
    total = hashlib.sha256()
    for row in rows:
        data = row.encode("utf-8", "surrogatepass")
        # The length in front keeps ("ab", "c") and ("a", "bc") apart.
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()
