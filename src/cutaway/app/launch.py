"""`cutaway app`: Streamlit on this machine only, with no telemetry and no calls outside."""

import os
import signal
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from cutaway.console import print_message
from cutaway.core.errors import BadSpec, Missing, RunError
from cutaway.store.remote import local_folder

HOST = "127.0.0.1"
RUNS_VARIABLE = "CUTAWAY_APP_RUNS"
# How many ports above the requested one are tried when it is taken.
PORT_TRIES = 20

# Other host names are refused, which prevents DNS rebinding.
ALLOWED_HOSTS = (HOST, "localhost")
STREAMLIT_OPTIONS: dict[str, str] = {
    "server.address": HOST,
    # Overrides a Streamlit config file: asgi.py tells pages that the server is at the root.
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
    """Serve the app until interrupted; a wrong option is refused before anything starts."""
    folder = local_folder(runs).absolute()
    if folder.exists() and not folder.is_dir():
        raise BadSpec(f"--runs must be a folder, {str(runs)!r} is a file.")
    if find_spec("streamlit") is None:
        raise Missing("The app needs streamlit. Get it with: pip install 'cutaway[app]'")
    port = free_port(port)
    print_message(f"Cutaway app: http://{HOST}:{port} (Ctrl-C ends it)")
    child = subprocess.Popen(
        streamlit_command(port, open_browser), env={**os.environ, RUNS_VARIABLE: str(folder)}
    )
    # When this process is terminated (a service manager, `kill`), end the server too.
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    status = _wait_for_exit(child)
    if status not in (0, -2, -15, 130):
        raise RunError(f"The app ended with status {status}; see its messages above.")


def streamlit_command(port: int, open_browser: bool) -> list[str]:
    """The command that starts Streamlit on the app."""
    script = Path(__file__).with_name("asgi.py")
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
    for candidate in range(port, min(port + PORT_TRIES, 65536)):
        with socket.socket() as test:
            # Without this, a port whose last connection has just closed counts as taken.
            test.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                test.bind((HOST, candidate))
            except OSError:
                continue
            return candidate
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
