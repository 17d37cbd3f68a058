"""`cutaway app`: Streamlit on this machine only, with no telemetry and no calls outside."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import webbrowser
from html import escape
from importlib.util import find_spec
from pathlib import Path

from cutaway.console import print_message
from cutaway.core.errors import BadSpec, Missing, RunError
from cutaway.home import home
from cutaway.store.remote import local_folder

HOST = "127.0.0.1"
RUNS_VARIABLE = "CUTAWAY_APP_RUNS"
# The token's environment variable; empty to switch the token off.
TOKEN_VARIABLE = "CUTAWAY_APP_TOKEN"
# Other host names are refused, which prevents DNS rebinding.
ALLOWED_HOSTS = (HOST, "localhost")
# How many ports above the requested one are tried when it is taken.
PORT_TRIES = 20
# Seconds for the browser to read the file that holds the URL.
REDIRECT_SECONDS = 30.0

# Streamlit's options; those that decide who may use the app are all here, also at their default.
STREAMLIT_OPTIONS: dict[str, str] = {
    "server.address": HOST,
    # asgi.py tells pages that the server is at the root.
    "server.baseUrlPath": "",
    "server.enableCORS": "true",
    "server.enableXsrfProtection": "true",
    "server.xsrfCookieSameSite": "strict",
    "server.enableStaticServing": "false",
    "server.enableAgentApi": "false",
    "server.scriptHealthCheckEnabled": "false",
    "server.maxUploadSize": "1",
    "server.fileWatcherType": "none",
    "server.runOnSave": "false",
    "server.allowRunOnSave": "false",
    "server.showEmailPrompt": "false",
    # The launcher opens the browser, with the token.
    "server.headless": "true",
    "global.developmentMode": "false",
    "browser.gatherUsageStats": "false",
    "browser.serverAddress": HOST,
    "client.toolbarMode": "minimal",
    "client.showErrorDetails": "stacktrace",
    "client.showErrorLinks": "false",
    "logger.hideWelcomeMessage": "true",
    "runner.magicEnabled": "false",
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


def launch(
    runs: Path | str, *, port: int = 8501, open_browser: bool = True, token: bool = True
) -> None:
    """Serve the app until interrupted; a wrong option is refused before anything starts."""
    folder = local_folder(runs).absolute()
    if folder.exists() and not folder.is_dir():
        raise BadSpec(f"--runs must be a folder, {str(runs)!r} is a file.")
    if find_spec("streamlit") is None:
        raise Missing("The app needs streamlit. Get it with: pip install 'cutaway[app]'")
    port = free_port(port)
    secret = secrets.token_urlsafe(24) if token else ""
    url = f"http://{HOST}:{port}/" + (f"?token={secret}" if secret else "")
    print_message(f"Cutaway app: {url} (Ctrl-C ends it)")
    # The server ends when its stdin closes, however this process ends.
    child = subprocess.Popen(
        server_command(port),
        stdin=subprocess.PIPE,
        env={**os.environ, RUNS_VARIABLE: str(folder), TOKEN_VARIABLE: secret},
    )
    # When this process is terminated (a service manager, `kill`), end the server too.
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    if open_browser:
        threading.Thread(target=open_when_ready, args=(url, port, child), daemon=True).start()
    status = _wait_for_exit(child)
    if status not in (0, -2, -15, 130):
        raise RunError(f"The app ended with status {status}; see its messages above.")


def server_command(port: int) -> list[str]:
    """The command that starts the server of the app."""
    flags = [f"--{name}={value}" for name, value in STREAMLIT_OPTIONS.items()]
    flags += [f"--server.port={port}"]
    for host in ALLOWED_HOSTS:
        flags += [f"--server.allowedHosts={host}", f"--client.allowedOrigins=http://{host}:{port}"]
    return [sys.executable, "-m", "cutaway.app.server", *flags]


def open_when_ready(url: str, port: int, child: "subprocess.Popen[bytes]") -> None:
    """Open a browser window when the server accepts connections."""
    while child.poll() is None:
        with socket.socket() as test:
            if test.connect_ex((HOST, port)) == 0:
                break
        time.sleep(0.1)
    else:
        return
    # Other users can read the arguments of a process: the browser gets a private file's name, not
    # the token.
    home().mkdir(parents=True, exist_ok=True)
    page = f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(url)}">'
    with tempfile.NamedTemporaryFile("w", suffix=".html", dir=home(), delete=False) as file:
        file.write(page)
    webbrowser.open(Path(file.name).as_uri())
    time.sleep(REDIRECT_SECONDS)
    Path(file.name).unlink(missing_ok=True)


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
