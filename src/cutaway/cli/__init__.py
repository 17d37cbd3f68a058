"""The command line: the verbs of the catalog, with options from their specs, and small commands."""

from cutaway.cli.main import app, main

__all__ = ["app", "main"]
