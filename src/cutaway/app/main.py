"""The app's script, which Streamlit runs from top to bottom: the pages and the open one."""

from functools import partial
from pathlib import Path

import streamlit as st

from cutaway.app import lazy_pages, overview
from cutaway.app.pages import PAGES


def main() -> None:
    """Draw the open page."""
    # A file: Streamlit fetches icons given by name from the network.
    icon = str(Path(__file__).with_name("icon.png"))
    st.set_page_config(page_title="Cutaway", page_icon=icon, layout="wide")
    st.logo(icon, size="large")
    pages = {
        "overview": st.Page(
            overview.show, title="Overview", icon=":material/dashboard:", default=True
        ),
        **{
            name: st.Page(
                partial(lazy_pages.show_page, "method", name),
                title=name.capitalize(),
                icon=page.icon,
                url_path=name,
            )
            for name, page in PAGES.items()
        },
        "live": st.Page(
            partial(lazy_pages.show_page, "live"),
            title="Live",
            icon=":material/visibility:",
            url_path="live",
        ),
        "new": st.Page(
            partial(lazy_pages.show_page, "new_run"),
            title="New run",
            icon=":material/play_circle:",
            url_path="new",
        ),
    }
    # Pages link to each other through these objects, which are created here.
    st.session_state["pages"] = pages
    st.navigation(list(pages.values()), position="top").run()
    lazy_pages.preload()


main()
