"""The command line: recipes become verbs from their specs, the rest are small commands."""

from cutaway.cli.main import app, main

__all__ = ["app", "main"]
