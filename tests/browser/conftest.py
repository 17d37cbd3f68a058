"""A headless Chromium, a served app, and a page that remembers what went wrong on it.

CUTAWAY_SCREENSHOTS names a folder to keep the pictures in; otherwise they go to pytest's own.
"""

import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cutaway.app import launch
from cutaway.app.guard import cookie_name

TOKEN = "a-token-of-the-tests"
# Each worker of pytest-xdist has its own range of ports, so that two never ask for the same one.
FIRST_PORT = 8700 + launch.PORT_TRIES * int(
    os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
)

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
)  # fmt: skip


@dataclass
class Watched:
    """A browser page, what its console complained about, and whom it called."""

    page: object
    complaints: list[str] = field(default_factory=list)
    called: set[str] = field(default_factory=set)

    def shoot(self, folder: Path, name: str, height: int = 0) -> None:
        """A picture of the page, of `height` pixels when given."""
        size = self.page.viewport_size
        if height:
            self.page.set_viewport_size({**size, "height": height})
            self.page.wait_for_timeout(1000)
        self.page.screenshot(path=folder / f"{name}.png")
        self.page.set_viewport_size(size)


@pytest.fixture(scope="session")
def chromium():
    """One headless browser for all tests."""
    api = pytest.importorskip("playwright.sync_api")
    path = os.environ.get("BROWSER_PATH") or shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium on this machine; name one with BROWSER_PATH")
    with api.sync_playwright() as player:
        browser = player.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium):
    """A fresh page: `open_page(width=390, scheme="dark")`."""
    contexts = []

    def make(width: int = 1360, height: int = 900, scheme: str = "light") -> Watched:
        size = {"width": width, "height": height}
        context = chromium.new_context(viewport=size, color_scheme=scheme, accept_downloads=True)
        # Long enough for a machine that is busy with other things; a quick one never waits.
        context.set_default_timeout(120_000)
        contexts.append(context)
        # As after opening the printed URL once; test_guard opens it.
        context.add_cookies([
            {"name": cookie_name(port), "value": TOKEN, "domain": launch.HOST, "path": "/"}
            for port in range(FIRST_PORT, FIRST_PORT + launch.PORT_TRIES)
        ])  # fmt: skip
        watched = Watched(context.new_page())
        watched.page.on("console", lambda m: _hear(watched, m))
        watched.page.on("pageerror", lambda e: watched.complaints.append(str(e)))
        watched.page.on("request", lambda r: watched.called.add(_whom(r.url)))
        return watched

    yield make
    for context in contexts:
        context.close()


def _hear(watched: Watched, message) -> None:
    if message.type == "error":
        watched.complaints.append(f"{message.text} ({message.location.get('url', '')})")


def _whom(url: str) -> str:
    return url.split(":")[0] if url.startswith(("file:", "data:", "blob:")) else url.split("/")[2]


@pytest.fixture
def serve(tmp_path):
    """The app, served from a place of its own: `url = serve(runs)`; its processes in `started`."""
    started = []

    def begin(runs: Path, place: Path = tmp_path) -> str:
        port = launch.free_port(FIRST_PORT)
        env = {
            **os.environ,
            launch.RUNS_VARIABLE: str(runs),
            launch.TOKEN_VARIABLE: TOKEN,
            "CUTAWAY_HOME": str(place / "home"),
        }
        with (tmp_path / "server.log").open("wb") as log:
            server = subprocess.Popen(
                launch.server_command(port), cwd=place, env=env, stdin=subprocess.PIPE, stdout=log,
                stderr=log,
            )  # fmt: skip
        started.append(server)
        url = f"http://{launch.HOST}:{port}"
        _wait_for(url, server)
        return url

    begin.started = started
    yield begin
    for server in started:
        server.terminate()
        server.communicate(timeout=20)


def _wait_for(url: str, server: subprocess.Popen, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while True:
        assert server.poll() is None and time.monotonic() < end
        try:
            urllib.request.urlopen(f"{url}/_stcore/health", timeout=5)
        except urllib.error.HTTPError as error:
            assert error.code == 403, "a stranger is refused"
            return
        except OSError:
            time.sleep(0.2)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory) -> Path:
    """Where screenshots go."""
    asked = os.environ.get("CUTAWAY_SCREENSHOTS")
    folder = Path(asked) if asked else tmp_path_factory.mktemp("pictures")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
