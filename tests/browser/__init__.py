"""A real browser walks through the report and the app; `pytest -m browser tests/browser`."""
