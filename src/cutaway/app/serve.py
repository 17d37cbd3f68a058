"""`python -m cutaway.app.serve run SCRIPT ...`: Streamlit, its first page loaded ahead.

Streamlit runs the script, and so imports what it needs, when the first reader is there. Here a
thread imports it while the browser is still on its way.
"""

import socket
import sys
import time
from importlib import import_module
from threading import Thread

# In this order: whoever looks at pandas while it is half loaded fails.
AHEAD = ("pandas", "cutaway.app.overview")
# Streamlit's name of the port, as `launch` gives it.
PORT = "server.port="


def ahead(port: int | None = None, seconds: float = 10.0) -> Thread:
    """Load what the first page needs as soon as the port is served: before, it would only delay."""
    loading = Thread(target=_load, args=(port, seconds), daemon=True)
    loading.start()
    return loading


def _load(port: int | None, seconds: float) -> None:
    until = time.monotonic() + seconds
    while port is not None and time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.02)
    for name in AHEAD:
        import_module(name)


if __name__ == "__main__":
    from streamlit.web import cli

    ahead(next((int(word.rpartition("=")[2]) for word in sys.argv if PORT in word), None))
    cli.main()
