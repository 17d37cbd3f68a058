"""List the licences of all dependencies: python docs/licences.py writes docs/licences.md.

The packages are those that `pip install 'cutaway[app]'` needs, directly or indirectly; licences are read
from the installed packages. tests/test_supply_chain.py checks that the page is current.
"""

from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PAGE = Path(__file__).with_name("licences.md")
EXTRAS = ("app",)
GPU_ONLY = ("nvidia-", "cuda-", "triton")
HEAD = """# Licences of the dependencies

Every package that `pip install 'cutaway[app]'` installs, with the licence its metadata names.
Written by `python docs/licences.py`. On a machine with an NVIDIA GPU, PyTorch also installs NVIDIA's
libraries, under NVIDIA's own licences.

| package | licence |
|---|---|
"""


def dependencies(name: str, extras: tuple[str, ...] = ()) -> dict[str, Distribution]:
    """The installed packages that a package needs, directly or indirectly, by name."""
    found: dict[str, Distribution] = {}
    todo = [(name, extras)]
    while todo:
        current, wanted = todo.pop()
        for line in distribution(current).requires or []:
            need = Requirement(line)
            marker = need.marker
            if marker and not any(marker.evaluate({"extra": one}) for one in ("", *wanted)):
                continue
            key = canonicalize_name(need.name)
            if key in found or key.startswith(GPU_ONLY):
                continue
            try:
                found[key] = distribution(key)
            except PackageNotFoundError:  # for another platform
                continue
            todo.append((key, tuple(need.extras)))
    return dict(sorted(found.items()))


def licence(package: Distribution) -> str:
    """The licence that a package's metadata names; an empty string if it names none."""
    facts = package.metadata
    classifiers = [c.split(" :: ")[-1] for c in facts.get_all("Classifier") or [] if "License" in c]
    # Some packages have the whole text there; its first line is the name.
    text = (facts.get("License") or "").strip().split("\n")[0]
    return facts.get("License-Expression") or ", ".join(c for c in classifiers if c != "OSI Approved") or text


def page() -> str:
    """The page's text."""
    lines = [f"| {name} | {licence(one)} |" for name, one in dependencies("cutaway", EXTRAS).items()]
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
