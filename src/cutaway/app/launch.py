"""`cutaway app`: Streamlit on this machine only, with no telemetry and no calls outside."""

import os
import signal
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from cutaway.core.errors import BadSpec, Missing, RunError
from cutaway.store.remote import local_folder

HOST = "127.0.0.1"
RUNS_VARIABLE = "CUTAWAY_APP_RUNS"
# How many ports above the asked one are tried when it is taken.
PORT_TRIES = 20

# Other names for this machine are refused, so no web page can reach the app by a DNS trick.
ALLOWED_HOSTS = (HOST, "localhost")
STREAMLIT_OPTIONS: dict[str, str] = {
    "server.address": HOST,
    # Whatever a config file of Streamlit's says: pages are told that their server is at the root.
    "server.baseUrlPath": "",
    "server.fileWatcherType": "none",
    "server.runOnSave": "false",
    "server.showEmailPrompt": "false",
    "browser.gatherUsageStats": "false",
    "client.toolbarMode": "minimal",
    "client.showErrorDetails": "stacktrace",
    "client.showErrorLinks": "false",
    "theme.headingFontSizes": '["2rem", "1.6rem", "1.25rem", "1.1rem", "1rem", "1rem"]',
    "theme.paddingTop": "1.5rem",
    "theme.paddingBottom": "4rem",
    "theme.light.primaryColor": "#0b6fa8",
    "theme.light.backgroundColor": "#ffffff",
    "theme.light.secondaryBackgroundColor": "#f3f5f8",
    "theme.light.textColor": "#1f2733",
    "theme.dark.primaryColor": "#3fa7e0",
    "theme.dark.backgroundColor": "#12161d",
    "theme.dark.secondaryBackgroundColor": "#1a202a",
    "theme.dark.textColor": "#e6eaf0",
}


def launch(runs: Path | str, *, port: int = 8501, open_browser: bool = True) -> None:
    """Serve the app until interrupted; BadSpec or Missing before anything starts."""
    folder = local_folder(runs).absolute()
    if folder.exists() and not folder.is_dir():
        raise BadSpec(f"--runs must be a folder, {str(runs)!r} is a file.")
    if find_spec("streamlit") is None:
        raise Missing("The app needs streamlit. Get it with: pip install 'cutaway[app]'")
    port = free_port(port)
    sys.stderr.write(f"Cutaway app: http://{HOST}:{port} (Ctrl-C ends it)\n")
    child = subprocess.Popen(
        streamlit_command(port, open_browser), env={**os.environ, RUNS_VARIABLE: str(folder)}
    )
    # Ended from outside (a service manager, `kill`), the server must not stay behind.
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    status = _wait_for_exit(child)
    if status not in (0, -2, -15, 130):
        raise RunError(f"The app ended with status {status}; its last words stand above.")


def streamlit_command(port: int, open_browser: bool) -> list[str]:
    """The words that start Streamlit on the app."""
    script = Path(__file__).with_name("served.py")
    options = {
        **STREAMLIT_OPTIONS,
        "server.port": str(port),
        "server.headless": str(not open_browser).lower(),
    }
    flags = [f"--{name}={value}" for name, value in options.items()]
    flags += [f"--server.allowedHosts={host}" for host in ALLOWED_HOSTS]
    return [sys.executable, "-m", "streamlit", "run", str(script), *flags]


def free_port(port: int) -> int:
    """The port itself, or the next free one above it."""
    if not 1 <= port <= 65535:
        raise BadSpec(f"--port must be between 1 and 65535, got {port!r}.")
    for one in range(port, min(port + PORT_TRIES, 65536)):
        with socket.socket() as probe:
            # Without this a port whose last connection just closed would count as taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, one))
            except OSError:
                continue
            return one
    raise BadSpec(
        f"Ports {port} to {port + PORT_TRIES - 1} are all taken. Choose another with --port."
    )


def _wait_for_exit(child: subprocess.Popen[bytes]) -> int:
    try:
        return child.wait()
    except KeyboardInterrupt:
        # The same Ctrl-C reached Streamlit, which is closing down.
        try:
            return child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            child.kill()
            return child.wait()
