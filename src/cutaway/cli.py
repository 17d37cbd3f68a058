"""The command line: verbs built from the specs."""


def main() -> None:
    """Run the command line."""
