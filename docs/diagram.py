"""Draw the packages and their imports: python docs/diagram.py writes docs/pictures/packages.svg.

Boxes are in the layers that pyproject.toml declares; each lists the packages it imports, without
those that follow from others. tests/test_architecture.py checks that the picture is current.
"""

import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "packages.svg"
WIDTH, HEIGHT, GAP, ROW, MARGIN = 222, 58, 16, 78, 20
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2937 }
  .what { font-size: 10.5px; fill: #6b7280 }
  rect { fill: #ffffff; stroke: #94a3b8 }
  .method rect { fill: #eef2ff; stroke: #6366f1 }
  .uses { font-size: 10px; fill: #94a3b8 }
  .band { fill: #f1f5f9; stroke: none }
"""
WORDS = {
    "cli": "the command line", "app": "the web app", "studies": "several methods together",
    "methods": "one folder per method", "extract": "one forward pass",
    "training": "one training loop", "recipe": "the life cycle of a verb",
    "report": "tables, figures, HTML", "data": "texts in", "models": "checkpoints in",
    "store": "what is kept", "engine": "where pieces run", "solvers": "batched classifiers",
    "pool": "tokens to one vector", "measure": "metrics, splits, intervals",
    "home": "the cache folder", "console": "progress and messages", "catalog": "one row per verb",
    "core": "errors, specs, digests",
}  # fmt: skip


def layers() -> list[list[str]]:
    """The packages by layer, top first, as the import contract declares them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    rows = next(c["layers"] for c in contracts["contracts"] if c["name"] == "Layers")
    named = [[part.strip() for part in row.split("|")] for row in rows]
    return [row for row in named if row != ["__main__"]]


@cache
def package_imports() -> Mapping[str, frozenset[str]]:
    """The packages that each package imports, lazily or not."""
    graph, names = grimp.build_graph("cutaway"), [name for row in layers() for name in row]
    found: dict[str, set[str]] = {name: set() for name in names}
    for module in graph.modules:
        package = module.split(".")[1] if "." in module else ""
        for other in graph.find_modules_directly_imported_by(module):
            target = other.split(".")[1] if "." in other else ""
            if package in found and target in found and target != package:
                found[package].add(target)
    return {name: frozenset(others) for name, others in found.items()}


def reduced() -> dict[str, set[str]]:
    """The imports without those that follow from others."""
    imports = package_imports()

    @cache
    def below(name: str) -> frozenset[str]:
        return frozenset(imports[name]).union(*(below(other) for other in imports[name]))

    return {
        name: {o for o in others if not any(o in below(p) for p in others if p != o)}
        for name, others in imports.items()
    }


def draw() -> str:
    """The picture as SVG."""
    rows = layers()
    wide = max(len(row) for row in rows) * (WIDTH + GAP) - GAP + 2 * MARGIN
    tall = len(rows) * ROW - (ROW - HEIGHT) + 2 * MARGIN
    place = {}
    for number, row in enumerate(rows):
        left = (wide - len(row) * (WIDTH + GAP) + GAP) / 2
        for column, name in enumerate(row):
            place[name] = (left + column * (WIDTH + GAP), MARGIN + number * ROW)
    bands = [_band(number, wide) for number in range(len(rows))]
    boxes = [_box(name, *place[name]) for name in place]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {tall:.0f}" '
        'role="img" aria-label="The packages of Cutaway and their imports">\n'
        f"<style>{STYLE}</style>\n"
        f'<rect width="100%" height="100%" style="stroke:none"/>\n'
        + "\n".join([*bands, *boxes]) + "\n</svg>\n"
    )  # fmt: skip


def _box(name: str, x: float, y: float) -> str:
    words = escape(WORDS.get(name, ""))
    uses = ", ".join(sorted(reduced()[name]))
    kind = ' class="method"' if name == "methods" else ""
    return (
        f'<g{kind} transform="translate({x:.1f} {y:.1f})"><rect width="{WIDTH}" height="{HEIGHT}" '
        f'rx="6"/><text x="10" y="20">{escape(name)}</text>'
        f'<text class="what" x="10" y="35">{words}</text>'
        f'<text class="uses" x="10" y="50">{"imports " + uses if uses else ""}</text></g>'
    )


def _band(number: int, wide: float) -> str:
    y, tall = MARGIN + number * ROW - (ROW - HEIGHT) / 4, HEIGHT + (ROW - HEIGHT) / 2
    return f'<rect class="band" x="0" y="{y:.1f}" width="{wide:.0f}" height="{tall:.1f}"/>'


if __name__ == "__main__":
    PICTURE.write_text(draw())
    sys.stdout.write(f"written: {PICTURE.relative_to(ROOT)}\n")
