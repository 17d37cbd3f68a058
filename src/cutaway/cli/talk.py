"""How commands talk: results on stdout, everything else on stderr."""

import json
import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Talk:
    """How a command talks."""

    dry_run: bool = False
    """Only estimate rows, tokens, time, disk and memory."""
    print_spec: bool = False
    """Show the resolved spec as JSON and stop."""
    json: bool = False
    """The summary as JSON on stdout, nothing else there."""
    quiet: bool = False
    """No progress and no messages."""


def put(text: str) -> None:
    """One piece of result, on stdout."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def put_json(value: Any) -> None:
    """A value as JSON, on stdout."""
    put(json.dumps(value, indent=2, default=str, ensure_ascii=False))


def complain(text: str) -> None:
    """One message for the user, on stderr."""
    sys.stderr.write(text if text.endswith("\n") else text + "\n")
