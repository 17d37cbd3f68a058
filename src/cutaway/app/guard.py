"""Who may use the app: the Host and Origin of every request, the token, and the page's policy."""

import os
import re
import secrets
from dataclasses import dataclass, field
from functools import cache
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cutaway.app.launch import ALLOWED_HOSTS, TOKEN_VARIABLE

LOCAL_HOST = re.compile(rf"({'|'.join(map(re.escape, ALLOWED_HOSTS))})(:[0-9]{{1,5}})?")
LOGIN_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Cutaway</title>
<style>body { font: 1rem sans-serif; margin: 3rem }</style>
<h1>Cutaway</h1><p>Open the URL that <code>cutaway app</code> has printed; it ends with
<code>?token=...</code>. Or paste the token here:</p>
<form><input name="token" type="password" autofocus aria-label="Token"> <button>Open</button></form>
"""


@dataclass(frozen=True)
class Access:
    """The token that a browser must present once; an empty one lets everyone in."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def allows(self, given: str | None) -> bool:
        """Whether this is the token, compared in constant time."""
        return not self.token or secrets.compare_digest(
            (given or "").encode("utf-8", "surrogatepass"), self.token.encode()
        )


@cache
def current_access() -> Access:
    """The access of this process, from its environment; the variable is then removed.

    Without the variable a random token keeps everyone out.
    """
    token = os.environ.pop(TOKEN_VARIABLE, None)
    return Access() if token is None else Access(token)


def content_policy(scripts: tuple[str, ...] = ()) -> str:
    """The Content-Security-Policy of a response; `scripts` are the hashes of inline scripts."""
    rules = {
        "default-src": "'none'",
        "script-src": " ".join(["'self'", *(f"'{one}'" for one in scripts)]),
        # Streamlit's components and plotly's figures set styles from scripts.
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:",
        "font-src": "'self' data:",
        "connect-src": "'self'",
        "worker-src": "'self' blob:",
        "manifest-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


SECURITY_HEADERS = {
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class GuardMiddleware:
    """Refuses requests for another host, from another site or without the token."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        port = int(scope["server"][1])
        reply = _with_headers(send) if scope["type"] == "http" else send
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = dict(query).get("token")
        if not is_local_request(scope):
            await _refuse(scope, reply, "This host name or this site may not use the app.")
        elif given is not None and self.access.token and self.access.allows(given):
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            await _send_cookie(scope, reply, cookie_name(port), given, rest)
        elif self.access.allows(_read_cookie(scope, cookie_name(port))):
            await self.app(scope, receive, reply)
        else:
            await _refuse(scope, reply, LOGIN_PAGE)


def is_local_request(scope: Scope) -> bool:
    """Whether the request names this machine as its host and comes from one of the app's pages.

    The port may differ from the server's: it is another one when SSH forwards it.
    """
    headers = Headers(scope=scope)
    hosts, origins = headers.getlist("host"), headers.getlist("origin")
    if len(hosts) != 1 or not LOCAL_HOST.fullmatch(hosts[0]):
        return False
    return all(origin == f"http://{hosts[0]}" for origin in origins)


def cookie_name(port: int) -> str:
    """The name of the token's cookie; browsers share cookies between the ports of a host."""
    return f"cutaway-{port}"


def _read_cookie(scope: Scope, name: str) -> str | None:
    for line in Headers(scope=scope).getlist("cookie"):
        # One by one: a broken cookie of another server must not hide ours.
        for piece in line.split(";"):
            try:
                found = SimpleCookie(piece.strip()).get(name)
            except CookieError:
                continue
            if found is not None:
                return found.value
    return None


def _with_headers(send: Send) -> Send:
    """A `send` that adds the security headers to the response."""

    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.setdefault("content-security-policy", content_policy())
            for name, value in SECURITY_HEADERS.items():
                headers[name] = value
            # The guard decides alone who may read; no other site may.
            for name in [name for name in headers if name.startswith("access-control-")]:
                del headers[name]
        await send(message)

    return add


async def _send_cookie(scope: Scope, send: Send, name: str, token: str, query: str) -> None:
    """Keep the token in a cookie and open the same page without it in the URL."""
    if scope["type"] == "websocket":
        await _refuse(scope, send, "")
        return
    host = Headers(scope=scope)["host"]
    path = scope.get("raw_path", scope["path"].encode()).decode("latin-1")
    url = f"http://{host}{path}" + (f"?{query}" if query else "")
    # Not Strict: that would hold the cookie back when the URL is opened from a terminal or a file.
    cookie = f"{name}={token}; HttpOnly; SameSite=Lax; Path=/"
    headers = [(b"location", url.encode("latin-1")), (b"set-cookie", cookie.encode("latin-1"))]
    headers += [(b"cache-control", b"no-store"), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def _refuse(scope: Scope, send: Send, text: str) -> None:
    if scope["type"] == "websocket":
        # Before the connection is accepted: the browser gets status 403.
        await send({"type": "websocket.close", "code": 4403})
        return
    kind = b"text/html; charset=utf-8" if text.startswith("<!doctype") else b"text/plain"
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(text.encode()))]
    headers += [(b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    body = b"" if scope["method"] == "HEAD" else text.encode()
    await send({"type": "http.response.body", "body": body})
