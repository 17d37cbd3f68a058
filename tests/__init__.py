"""Tests mirror src/cutaway; `tests.tiny` builds the models they open."""
