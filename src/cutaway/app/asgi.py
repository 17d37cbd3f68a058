"""The ASGI app that Streamlit serves: guarded, its pages know its URL, it asks no other server."""

import base64
import hashlib
import re
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import streamlit as st
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import net_util

from cutaway.app import guard
from cutaway.app.guard import GuardMiddleware, content_policy

# Without this, a page opened by its URL (/probe) first looks for the server below that URL, and
# the browser's console shows an error for each attempt.
BASE_URL_SCRIPT = (
    b'<script>window.__streamlit = {BACKEND_BASE_URL: window.location.origin + "/"}</script>'
)
HEAD_TAG = b"<head>"


class BaseUrlMiddleware:
    """Adds BASE_URL_SCRIPT to every HTML page; other responses are unchanged."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http" or scope["method"] != "GET" or not is_page(scope["path"]):
            await self.app(scope, receive, send)
            return
        await self.app(_uncompressed(scope), receive, _HtmlRewriter(send))


def is_page(path: str) -> bool:
    """Whether the path belongs to a page, not to a file or a service."""
    return "." not in path and not path.startswith(("/_stcore", "/static", "/media", "/component"))


def _uncompressed(scope: Scope) -> Scope:
    """The request for the full page: not compressed, not partial, not conditional."""
    drop = {b"accept-encoding", b"if-none-match", b"if-modified-since", b"range", b"if-range"}
    return {**scope, "headers": [(k, v) for k, v in scope["headers"] if k not in drop]}


def inline_hashes(page: bytes) -> tuple[str, ...]:
    """The hashes of a page's inline scripts, which its policy allows."""
    scripts = re.findall(rb"<script>(.*?)</script>", page, re.DOTALL)
    digests = [hashlib.sha256(script).digest() for script in scripts]
    return tuple(f"sha256-{base64.b64encode(one).decode()}" for one in digests)


class _HtmlRewriter:
    """Forwards a response and adds BASE_URL_SCRIPT to the head of its HTML."""

    def __init__(self, send: Send) -> None:
        self.send, self.body = send, b""
        self.start: MutableMapping[str, Any] = {}

    async def __call__(self, message: Message) -> None:
        """Collect one part of the response; forward it when it is complete."""
        if message["type"] == "http.response.start":
            self.start = message
            return
        self.body += message.get("body", b"")
        if message.get("more_body"):
            return
        headers = MutableHeaders(raw=self.start["headers"])
        if headers.get("content-type", "").startswith("text/html"):
            self.body = self.body.replace(HEAD_TAG, HEAD_TAG + BASE_URL_SCRIPT, 1)
            headers["content-security-policy"] = content_policy(inline_hashes(self.body))
            headers["content-length"] = str(len(self.body))
            # The ETag belongs to the file without the script.
            del headers["etag"]
        await self.send(self.start)
        await self.send({"type": "http.response.body", "body": self.body})


def _no_address() -> None:
    """Stand in for Streamlit's lookup of this machine's address: there is none to compare with."""


# For a request from another site Streamlit asks an external server for this machine's address. The
# app is only at 127.0.0.1, so the lookup is disabled.
net_util.get_external_ip = net_util.get_internal_ip = _no_address
app = st.App(
    Path(__file__).with_name("main.py"),
    middleware=[
        Middleware(GuardMiddleware, access=guard.current_access()),
        Middleware(BaseUrlMiddleware),
    ],
)
