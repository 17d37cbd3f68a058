"""Law: with the network cut, everything works that needs no download."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny import SENTENCES, tiny

CUT = ("unshare", "--map-root-user", "--net")


def can_cut() -> bool:
    """Whether this machine lets a process have a network of its own."""
    if shutil.which(CUT[0]) is None:
        return False
    return subprocess.run([*CUT, "true"], capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(
    not can_cut(), reason="no rights for a network namespace (unshare --net)"
)


def alone(*words: str, **options) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*CUT, *words], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr[-2000:]
    return done


def cutaway(*words: str) -> str:
    return alone(sys.executable, "-m", "cutaway", *words).stdout


def test_the_network_is_really_cut() -> None:
    ask = "import socket; socket.create_connection(('1.1.1.1', 53), timeout=2)"
    done = subprocess.run([*CUT, sys.executable, "-c", ask], capture_output=True, text=True)
    assert "unreachable" in done.stderr


def test_import_lists_and_help_need_no_network() -> None:
    alone(sys.executable, "-c", "import cutaway; cutaway.open, cutaway.probe")
    assert "smollm2-135m" in cutaway("models")
    assert "sst2" in cutaway("tasks")
    assert "probe" in cutaway("--help")


@pytest.fixture(scope="module")
def toured(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cut")
    words = [*SENTENCES, *["It was good and it was bad."] * 9]
    words += ["All about business, cooking, science and sport."] * 9
    model = tiny("llama", folder / "model", texts=words)
    cutaway("tour", "--model", str(model), "--out", str(folder / "tour"), "--quick", "--quiet")
    return folder / "tour"


def test_the_tour_and_the_report_are_made_without_a_network(toured, tmp_path) -> None:
    assert (toured / "report.html").stat().st_size > 1e6
    page = tmp_path / "again.html"
    cutaway("report", "--runs", str(toured / "runs"), "--html", str(page))
    assert page.stat().st_size > 1e6


def test_the_app_opens_without_a_network(toured) -> None:
    words = ["-m", "cutaway", "app", "--runs", str(toured / "runs"), "--port", "8599"]
    helper = Path(__file__).with_name("alone.py")
    alone(sys.executable, str(helper), "8599", sys.executable, *words, "--no-open", "--no-token")
