import subprocess
import sys

FIRST = """
import sys
from cutaway.app import later, overview
names = {f"cutaway.app.{name}" for name in later.MODULES}
assert not names & set(sys.modules), "the first page waits for no other"
assert not {"pandas", "pydantic", "psutil"} & set(sys.modules), "nor for what it needs not"
timer = later.warm()
assert later.warm() is timer, "once per process"
timer.join()
assert names <= set(sys.modules), "and the next page for nothing"
"""


def test_the_first_page_loads_no_other_and_the_others_are_loaded_behind_it() -> None:
    subprocess.run([sys.executable, "-c", FIRST], check=True, timeout=120)
