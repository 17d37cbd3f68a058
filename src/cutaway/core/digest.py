"""SHA-256 digests of strings, JSON values and rows; cache keys and run addresses use them."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any


def digest_text(text: str) -> str:
    """SHA-256 of a string, as hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def canonical(value: Any) -> str:
    """Canonical JSON of a value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest_json(value: Any) -> str:
    """SHA-256 of a value's canonical JSON, as hex."""
    return digest_text(canonical(value))


def digest_rows(rows: Iterable[str]) -> str:
    """SHA-256 of a sequence of strings; their order and boundaries matter."""
    total = hashlib.sha256()
    for row in rows:
        data = row.encode("utf-8", "surrogatepass")
        # The length prefix distinguishes ("ab", "c") from ("a", "bc").
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()
