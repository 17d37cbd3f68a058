"""The frame around a rival that does one job: arguments from a JSON file, the answer on stdout.

Standard library only: it is run by environments that know nothing of Cutaway.
"""

import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

MARK = "@@ "


def job(work: Callable[[dict[str, Any]], dict[str, Any]], package: str) -> None:
    """Do it, and say what came of it; libraries may print what they like meanwhile."""
    answers, sys.stdout = sys.stdout, sys.stderr
    found = work(json.loads(Path(sys.argv[1]).read_text("utf-8")))
    answers.write(MARK + json.dumps({"version": version(package), **found}) + "\n")
