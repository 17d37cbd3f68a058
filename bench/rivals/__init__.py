"""Other tools doing the same work, each run by the Python of its own throw-away environment."""
