"""The app's script: the pages, and which of them is open. Streamlit runs it top to bottom."""

from functools import partial
from pathlib import Path

import streamlit as st

from cutaway.app import lazy_pages as later
from cutaway.app import overview
from cutaway.app.pages import PAGES


def main() -> None:
    """Draw the open page."""
    # A file, because Streamlit fetches icons given by name from the network.
    icon = str(Path(__file__).with_name("icon.png"))
    st.set_page_config(page_title="Cutaway", page_icon=icon, layout="wide")
    st.logo(icon, size="large")
    pages = {
        "overview": st.Page(
            overview.show, title="Overview", icon=":material/dashboard:", default=True
        ),
        **{
            name: st.Page(
                partial(later.show_page, "method", name),
                title=name.capitalize(),
                icon=page.icon,
                url_path=name,
            )
            for name, page in PAGES.items()
        },
        "live": st.Page(
            partial(later.show_page, "live"),
            title="Live",
            icon=":material/visibility:",
            url_path="live",
        ),
        "new": st.Page(
            partial(later.show_page, "new_run"),
            title="New run",
            icon=":material/play_circle:",
            url_path="new",
        ),
    }
    # Pages link to each other by name; the objects only exist here.
    st.session_state["pages"] = pages
    st.navigation(list(pages.values()), position="top").run()
    later.preload()


main()
