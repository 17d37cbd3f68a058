"""The served app, attacked: from a hostile folder, by other sites, without the token."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import psutil
import pytest

from cutaway.app import launch
from cutaway.app.guard import cookie_name

HOSTILE_CONFIG = """
[server]
address = "0.0.0.0"
enableCORS = false
enableXsrfProtection = false
enableAgentApi = true
enableStaticServing = true
corsAllowedOrigins = ["http://evil.example"]
allowedHosts = ["evil.example"]
baseUrlPath = "x"
[browser]
gatherUsageStats = true
[client]
allowedOrigins = ["http://evil.example"]
[theme]
font = "Evil:https://evil.example/font.css"
"""
HOSTILE_VARIABLES = {
    "STREAMLIT_SERVER_ENABLE_CORS": "false",
    "STREAMLIT_SERVER_ENABLE_AGENT_API": "true",
    "STREAMLIT_SERVER_COOKIE_SECRET": "known",
    "STREAMLIT_THEME_FONT": "Evil:https://evil.example/font.css",
}
PATHS = (
    "/", "/probe", "/_stcore/health", "/_stcore/host-config", "/_stcore/metrics", "/favicon.png",
    "/media/x.png", "/app/static/x", "/component/x/y", "/_stcore/agent/openapi.json", "/none",
)  # fmt: skip


@dataclass
class Served:
    """A running `cutaway app` and the token it has printed."""

    process: subprocess.Popen
    port: int
    token: str

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, dict, bytes]:
        """The answer to one request; header names with `_` for `-`."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.putrequest(method, path, skip_host="Host" in named)
            for name, value in named.items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, found, b"" if answer.status == 101 else answer.read()
        finally:
            connection.close()

    @property
    def cookie(self) -> str:
        """The cookie of a browser that opened the printed URL."""
        return f"{cookie_name(self.port)}={self.token}"

    def open_socket(self, **headers: str) -> int:
        """The status of a WebSocket handshake with the app; 101 if it was opened."""
        handshake = {
            "Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Version": "13",
            "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
        }  # fmt: skip
        return self.ask("/_stcore/stream", **handshake, **headers)[0]


def start(place: Path) -> Served:
    """`cutaway app`, started in a folder."""
    port = launch.free_port(8600)
    words = ["app", "--no-open", f"--port={port}", f"--runs={place / 'runs'}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "cutaway", *words], cwd=place, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **HOSTILE_VARIABLES},
    )  # fmt: skip
    assert process.stderr is not None
    served = Served(process, port, process.stderr.readline().split("token=")[1].split()[0])
    wait_until(lambda: is_listening(served.port))
    return served


def is_listening(port: int) -> bool:
    """Whether something accepts connections at the port."""
    with launch.socket.socket() as test:
        return test.connect_ex((launch.HOST, port)) == 0


def wait_until(happened, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.fixture(scope="module")
def app(tmp_path_factory) -> Iterator[Served]:
    """The app, started in a folder with hostile settings."""
    place = tmp_path_factory.mktemp("hostile")
    (place / ".streamlit").mkdir()
    (place / ".streamlit" / "config.toml").write_text(HOSTILE_CONFIG)
    served = start(place)
    # A running app watches its settings: these would count at once.
    (place / ".streamlit" / "config.toml").write_text(HOSTILE_CONFIG + "\n")
    time.sleep(0.5)
    yield served
    served.process.terminate()
    served.process.communicate(timeout=20)


def test_a_stranger_gets_nothing(app: Served) -> None:
    for path in PATHS:
        status, headers, body = app.ask(path)
        assert status == 403 and app.token.encode() not in body, path
        assert "frame-ancestors 'none'" in headers["content-security-policy"], path
    assert app.open_socket() == 403


def test_the_printed_url_lets_a_browser_in(app: Served) -> None:
    status, headers, _ = app.ask(f"/probe?token={app.token}")
    assert status == 303 and headers["location"].endswith(f":{app.port}/probe")
    cookie = headers["set-cookie"].split(";")[0]
    status, headers, body = app.ask("/probe", Cookie=cookie)
    assert status == 200 and b"<title>" in body
    assert "script-src 'self' 'sha256-" in headers["content-security-policy"]
    assert app.open_socket(Cookie=cookie, Origin=f"http://127.0.0.1:{app.port}") == 101


def test_another_host_name_is_refused_on_every_path(app: Served) -> None:
    for path in PATHS:
        assert app.ask(path, Cookie=app.cookie, Host="evil.example")[0] == 403, path
    assert app.open_socket(Cookie=app.cookie, Host=f"evil.example:{app.port}") == 403


def test_another_site_is_refused_whatever_the_folder_s_settings_say(app: Served) -> None:
    for origin in ("http://evil.example", "https://x.streamlit.app", "null"):
        assert app.open_socket(Cookie=app.cookie, Origin=origin) == 403
        status, headers, _ = app.ask("/_stcore/host-config", Cookie=app.cookie, Origin=origin)
        assert status == 403 and "access-control-allow-origin" not in headers


def test_only_the_app_itself_may_send_messages_to_its_pages(app: Served) -> None:
    status, _, body = app.ask("/_stcore/host-config", Cookie=app.cookie)
    own = [f"http://{host}:{app.port}" for host in launch.ALLOWED_HOSTS]
    assert status == 200 and json.loads(body)["allowedOrigins"] == own


def test_no_programming_interface_is_served(app: Served) -> None:
    status, _, body = app.ask("/_stcore/agent/openapi.json", Cookie=app.cookie)
    assert status != 200 or b"disabled" in body.lower() or not json.loads(body).get("paths")
    assert app.ask("/_stcore/agent/sessions", "POST", Cookie=app.cookie)[0] in (403, 404, 405)


def test_it_listens_on_this_machine_only(app: Served) -> None:
    server = psutil.Process(app.process.pid).children()[0]
    listening = [one.laddr for one in server.net_connections() if one.status == "LISTEN"]
    assert [tuple(one) for one in listening] == [("127.0.0.1", app.port)]


def test_no_server_is_left_when_the_command_is_killed(tmp_path) -> None:
    served = start(tmp_path)
    children = psutil.Process(served.process.pid).children(recursive=True)
    served.process.send_signal(signal.SIGKILL)
    wait_until(lambda: not is_listening(served.port), seconds=10)
    wait_until(lambda: not any(one.is_running() for one in children), seconds=10)
    served.process.communicate(timeout=10)


def test_settings_of_folders_and_variables_change_no_option(tmp_path) -> None:
    (tmp_path / "hostile" / ".streamlit").mkdir(parents=True)
    (tmp_path / "hostile" / ".streamlit" / "config.toml").write_text(HOSTILE_CONFIG)
    (tmp_path / "hostile" / ".streamlit" / "secrets.toml").write_text('key = "x"')
    (tmp_path / "clean").mkdir()
    code = (
        "import json; from cutaway.app.server import ignore_settings; ignore_settings()\n"
        "from streamlit import config, secrets\n"
        "found = {k: o.value for k, o in config.get_config_options().items()}\n"
        "assert len(found.pop('server.cookieSecret')) == 64, 'a random one'\n"
        "print(json.dumps(found))\n"
        "print(secrets.load_if_toml_exists())"
    )
    found = {}
    for name, variables in (("clean", {}), ("hostile", HOSTILE_VARIABLES)):
        env = {**os.environ, **variables, "HOME": str(tmp_path / name)}
        found[name] = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path / name, env=env, capture_output=True,
            text=True, check=True,
        ).stdout  # fmt: skip
    assert found["clean"] == found["hostile"] and "evil" not in found["hostile"]
    assert found["hostile"].splitlines()[-1] == "False"
