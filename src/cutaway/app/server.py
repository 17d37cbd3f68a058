"""`python -m cutaway.app.server FLAGS`: Streamlit with the app, its options from FLAGS alone.

Started by `launch`, which keeps the other end of stdin open: when that closes, however the launcher
ended, the server ends too.
"""

import os
import sys
import threading
from pathlib import Path


def main(flags: list[str]) -> None:
    """Serve until stdin closes or a signal ends the process."""
    threading.Thread(target=_end_with_launcher, daemon=True).start()
    ignore_settings()
    from streamlit.web.cli import main as streamlit

    streamlit(["run", str(Path(__file__).with_name("asgi.py")), *flags])


def ignore_settings() -> None:
    """Ignore Streamlit's variables and files: a folder that someone else made must not matter."""
    for name in [name for name in os.environ if name.upper().startswith("STREAMLIT_")]:
        del os.environ[name]
    from streamlit import config

    # The list of config.toml and secrets.toml files that are read, and watched for changes.
    config.get_config_files = lambda file_name: []


def _end_with_launcher() -> None:
    """Wait until stdin closes; nothing is ever written to it."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
