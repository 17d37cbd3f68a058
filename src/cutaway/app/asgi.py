"""The app as its server sees it: Streamlit's pages, told where their server is."""

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import streamlit as st
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import net_util

# Without this a page that is opened by its address (/probe) looks for its server under that
# address first, and the browser's console shows an error for each guess.
BASE_URL_SCRIPT = (
    b'<script>window.__streamlit = {BACKEND_BASE_URL: window.location.origin + "/"}</script>'
)
HEAD_TAG = b"<head>"


class BaseUrlMiddleware:
    """Puts ROOT into every HTML page; all else passes as it is."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or scope["method"] != "GET" or not is_page(scope["path"]):
            await self.app(scope, receive, send)
            return
        await self.app(_uncompressed(scope), receive, _HtmlRewriter(send))


def is_page(path: str) -> bool:
    """Whether the path is a page's, and no file's or service's."""
    return "." not in path and not path.startswith(("/_stcore", "/static", "/media", "/component"))


def _uncompressed(scope: Scope) -> Scope:
    """The request for a whole page: not gzipped, not a part, and not only if it changed."""
    drop = {b"accept-encoding", b"if-none-match", b"if-modified-since", b"range", b"if-range"}
    return {**scope, "headers": [(k, v) for k, v in scope["headers"] if k not in drop]}


class _HtmlRewriter:
    """Sends a response on, its HTML with ROOT in its head."""

    def __init__(self, send: Send) -> None:
        self.send, self.body = send, b""
        self.start: MutableMapping[str, Any] = {}

    async def __call__(self, message: Message) -> None:
        """One piece of the response; sent on when it is whole."""
        if message["type"] == "http.response.start":
            self.start = message
            return
        self.body += message.get("body", b"")
        if message.get("more_body"):
            return
        headers = MutableHeaders(raw=self.start["headers"])
        if headers.get("content-type", "").startswith("text/html"):
            self.body = self.body.replace(HEAD_TAG, HEAD_TAG + BASE_URL_SCRIPT, 1)
            headers["content-length"] = str(len(self.body))
            # The tag is that of the file without ROOT.
            del headers["etag"]
        await self.send(self.start)
        await self.send({"type": "http.response.body", "body": self.body})


def _no_address() -> None:
    """An address of this machine that others could know it by: none."""


# A request that came from another site makes Streamlit ask a server outside which address this
# machine has, to see whether that is the site. The app is at HOST and nowhere else.
net_util.get_external_ip = net_util.get_internal_ip = _no_address
app = st.App(Path(__file__).with_name("main.py"), middleware=[Middleware(BaseUrlMiddleware)])
