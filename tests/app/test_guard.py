"""Only browsers on this machine that know the token may use the app, and no site may frame it."""

import asyncio

import pytest

from cutaway.app import guard
from cutaway.app.guard import Access, GuardMiddleware, content_policy, cookie_name
from cutaway.app.launch import TOKEN_VARIABLE

PORT, TOKEN = 8501, "right-token"
COOKIE = (b"cookie", f"{cookie_name(PORT)}={TOKEN}".encode())
HOST = (b"host", b"127.0.0.1:8501")


def ask(headers, *, query="", path="/probe", kind="http", method="GET", token=TOKEN):
    """Status, headers and whether the app was reached; 101 for an open WebSocket."""
    sent, reached = [], []

    async def inner(scope, receive, send) -> None:
        reached.append(scope)
        if kind == "http":
            headers = [(b"access-control-allow-origin", b"*")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"app"})
        else:
            await send({"type": "websocket.accept"})

    async def send(message) -> None:
        sent.append(message)

    scope = {
        "type": kind, "method": method, "path": path, "raw_path": path.encode(),
        "query_string": query.encode(), "headers": headers, "server": ("127.0.0.1", PORT),
    }  # fmt: skip
    asyncio.run(GuardMiddleware(inner, Access(token))(scope, None, send))
    start = sent[0]
    status = {"websocket.accept": 101, "websocket.close": 403}.get(start["type"]) or start["status"]
    assert bool(reached) is (status in (200, 101))
    found = {k.decode(): v.decode() for k, v in start.get("headers", [])}
    return status, found, b"".join(m.get("body", b"") for m in sent)


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(("host", "fits"), [
    ("127.0.0.1:8501", True), ("localhost:8501", True), ("evil.example", False), ("", False),
    ("evil.example:8501", False), ("127.0.0.1", True), ("127.0.0.1:9000", True),
    ("127.0.0.1:8501.evil.example", False), ("127.0.0.1:8501@evil.example", False),
    ("LOCALHOST.evil.example:8501", False), ("0.0.0.0:8501", False), ("[::1]:8501", False),
])  # fmt: skip
def test_only_this_server_s_own_host_names_are_served(host: str, fits: bool, kind: str) -> None:
    status, _, _ = ask([(b"host", host.encode()), COOKIE], kind=kind)
    assert (status in (200, 101)) is fits


def test_a_missing_or_second_host_is_refused() -> None:
    assert ask([COOKIE])[0] == 403
    assert ask([HOST, (b"host", b"evil.example"), COOKIE])[0] == 403


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(("origin", "fits"), [
    ("http://127.0.0.1:8501", True), ("http://localhost:8501", False), ("null", False),
    ("https://share.streamlit.app", False), ("http://127.0.0.1:9999", False), ("", False),
    ("https://127.0.0.1:8501", False),
])  # fmt: skip
def test_a_request_from_another_site_is_refused(origin: str, fits: bool, kind: str) -> None:
    status, _, _ = ask([HOST, COOKIE, (b"origin", origin.encode())], kind=kind)
    assert (status in (200, 101)) is fits


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize("cookie", [
    None, b"", b"cutaway-8501=", b"cutaway-8501=wrong-token", b"cutaway-8502=right-token",
    b"cutaway-8501=right-tokenx", b"cutaway-8501=right", "cutaway-8501=ümlaut".encode(),
    b"x" * 9000, b"\xff\xfe",
])  # fmt: skip
def test_without_the_token_nothing_is_shown(cookie: bytes | None, kind: str) -> None:
    headers = [HOST] if cookie is None else [HOST, (b"cookie", cookie)]
    for path in ("/", "/_stcore/health", "/static/js/index.js", "/media/x.png"):
        for method in ("GET", "HEAD", "POST", "OPTIONS"):
            status, _, body = ask(headers, kind=kind, path=path, method=method)
            assert status == 403 and b"right-token" not in body and body != b"app"


def test_a_broken_cookie_of_another_server_does_not_hide_ours() -> None:
    assert ask([HOST, (b"cookie", b"a[]=x; ;; b={}; " + COOKIE[1])])[0] == 200
    assert ask([HOST, (b"cookie", b"a[]=x"), COOKIE])[0] == 200


def test_the_printed_url_becomes_a_cookie_and_leaves_the_address_bar() -> None:
    status, headers, _ = ask([HOST], query=f"run=a%20b&token={TOKEN}&x=1")
    assert status == 303 and headers["location"] == "http://127.0.0.1:8501/probe?run=a+b&x=1"
    kept = headers["set-cookie"]
    assert kept.startswith(f"{cookie_name(PORT)}={TOKEN};")
    assert "HttpOnly" in kept and "SameSite=Lax" in kept and headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["//evil.example/x", "/\\evil.example", "/%0d%0aset-cookie:x"])
def test_the_redirect_never_leaves_the_server(path: str) -> None:
    _, headers, _ = ask([HOST], query=f"token={TOKEN}", path=path)
    assert headers["location"] == f"http://127.0.0.1:8501{path}"


def test_a_wrong_token_in_the_url_is_refused_and_a_known_browser_stays_in() -> None:
    assert ask([HOST], query="token=wrong")[0] == 403
    assert ask([HOST, COOKIE], query="token=wrong")[0] == 200
    assert ask([HOST], query=f"token={TOKEN}", kind="websocket")[0] == 403


def test_without_a_token_everyone_on_this_machine_is_let_in_but_no_other_site() -> None:
    assert ask([HOST], token="")[0] == 200
    assert ask([HOST], token="", query="token=anything")[0] == 200
    assert ask([(b"host", b"evil.example")], token="")[0] == 403
    assert ask([HOST, (b"origin", b"http://evil.example")], token="")[0] == 403


@pytest.mark.parametrize("headers", [[HOST, COOKIE], [HOST], [(b"host", b"evil")]])
def test_every_answer_forbids_framing_and_foreign_content(headers) -> None:
    _, found, _ = ask(headers)
    policy = dict(rule.split(" ", 1) for rule in found["content-security-policy"].split("; "))
    assert policy["frame-ancestors"] == policy["default-src"] == policy["base-uri"] == "'none'"
    assert "unsafe" not in policy["script-src"] and "http:" not in found["content-security-policy"]
    assert found["x-frame-options"] == "DENY" and found["referrer-policy"] == "no-referrer"
    assert found["x-content-type-options"] == "nosniff"
    assert not [name for name in found if name.startswith("access-control-")]


def test_the_policy_allows_the_inline_scripts_of_the_page_alone() -> None:
    assert "script-src 'self' 'sha256-abc='" in content_policy(("sha256-abc=",))


def test_the_token_is_taken_from_the_environment_once(monkeypatch) -> None:
    guard.current_access.cache_clear()
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    assert guard.current_access().token == "secret" == guard.current_access().token
    assert TOKEN_VARIABLE not in guard.os.environ, "runs that the app starts don't inherit it"
    guard.current_access.cache_clear()
    assert len(guard.current_access().token) >= 32, "without the variable nobody gets in"
    guard.current_access.cache_clear()
