import subprocess
import sys

FIRST_PAGE = """
import sys
from cutaway.app import lazy_pages, overview
names = {f"cutaway.app.{name}" for name in lazy_pages.LAZY_MODULES}
assert not names & set(sys.modules), "the first page loads no other page"
assert not {"pandas", "pydantic", "psutil"} & set(sys.modules), "nor what it can do without"
timer = lazy_pages.preload()
assert lazy_pages.preload() is timer, "once per process"
timer.join()
assert names <= set(sys.modules), "the other pages are loaded soon afterwards"
"""


def test_the_first_page_loads_no_other_and_the_others_are_preloaded_after_it() -> None:
    subprocess.run([sys.executable, "-c", FIRST_PAGE], check=True, timeout=120)
