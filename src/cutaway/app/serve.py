"""`python -m cutaway.app.serve run SCRIPT ...`: Streamlit, its first page loaded ahead.

Streamlit runs the script, and so imports what it needs, when the first reader is there. Here a
thread imports it while the browser is still on its way, which saves that reader about a second.
"""

from importlib import import_module
from threading import Thread

# In this order: whoever looks at pandas while it is half loaded fails.
AHEAD = ("pandas", "cutaway.app.overview")


def ahead() -> Thread:
    """Start to load what the first page needs."""
    loading = Thread(target=lambda: [import_module(name) for name in AHEAD], daemon=True)
    loading.start()
    return loading


if __name__ == "__main__":
    from streamlit.web import cli

    ahead()
    cli.main()
