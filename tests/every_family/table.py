"""The outcomes as the table in docs/models.md: `python -m tests.every_family.table` writes it."""

from pathlib import Path

from tests.every_family.outcomes import NOT_BUILT, OPEN, REFUSED

START, END = "<!-- every family -->", "<!-- end of every family -->"


def docs_section() -> str:
    """The section between the two comments of docs/models.md."""
    lines = [START, ""]
    for kind in ("causal", "masked"):
        names = [f"`{family}`" for family, one in OPEN if one == kind]
        lines += [f"Open and pass every check, {kind} ({len(names)}): {', '.join(names)}.", ""]
    lines += ["| family | kind | why it isn't opened |", "|---|---|---|"]
    for (family, kind), reason in sorted({**REFUSED, **NOT_BUILT}.items()):
        tried = "" if (family, kind) in REFUSED else " (not tried)"
        lines.append(f"| `{family}` | {kind} | {reason}{tried} |")
    return "\n".join([*lines, "", END])


def main() -> None:
    """Write the section."""
    page = Path(__file__).parents[2] / "docs" / "models.md"
    before, _, rest = page.read_text().partition(START)
    page.write_text(before + docs_section() + rest.partition(END)[2])


if __name__ == "__main__":
    main()
