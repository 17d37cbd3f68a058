"""mergekit: the same few weights of a tuned model put into the base (ties, by magnitude)."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from job import job

RECIPE = """
merge_method: ties
base_model: {base}
models:
  - model: {tuned}
    parameters: {{density: {density}, weight: 1.0}}
parameters: {{normalize: false}}
dtype: float32
"""


def work(args: dict[str, Any]) -> dict[str, Any]:
    recipe = Path(args["out"]).with_suffix(".yaml")
    recipe.write_text(RECIPE.format(**args))
    tool = Path(sys.executable).with_name("mergekit-yaml")
    start = time.perf_counter()
    done = subprocess.run([str(tool), str(recipe), args["out"]], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it failed"])[-1])
    seconds = time.perf_counter() - start
    return {"seconds": seconds}


if __name__ == "__main__":
    job(work, "mergekit")
