"""Pages know where their server is; nothing else on the way is touched."""

import asyncio

import pytest
from streamlit import net_util
from streamlit.web.server.server_util import is_url_from_allowed_origins

from cutaway.app.asgi import BASE_URL_SCRIPT, BaseUrlMiddleware, inline_hashes, is_page

PAGE = b"<html><head><title>x</title></head><body>y</body></html>"


def answer(path: str, kind: str, body: bytes, method: str = "GET") -> tuple[dict, bytes, dict]:
    """Headers and body that a browser gets for a request, and the headers the app saw."""
    seen: dict = {}
    sent: list[dict] = []

    async def inner(scope, receive, send) -> None:
        seen.update(scope["headers"])
        headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]
        headers += [(b"etag", b'"1"')]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body[:9], "more_body": True})
        await send({"type": "http.response.body", "body": body[9:]})

    async def send(message) -> None:
        sent.append(message)

    asked = [(b"accept-encoding", b"gzip"), (b"if-none-match", b'"1"')]
    scope = {"type": "http", "method": method, "path": path, "headers": asked}
    asyncio.run(BaseUrlMiddleware(inner)(scope, None, send))
    return dict(sent[0]["headers"]), b"".join(m.get("body", b"") for m in sent[1:]), seen


@pytest.mark.parametrize("path", ["/", "/probe", "/live", "/no/such/page"])
def test_a_page_is_told_its_root_once(path: str) -> None:
    headers, body, seen = answer(path, "text/html; charset=utf-8", PAGE)
    assert body == PAGE.replace(b"<head>", b"<head>" + BASE_URL_SCRIPT)
    assert headers[b"content-length"] == b"%d" % len(body) and b"etag" not in headers
    assert not seen, "asked for the whole page, as it is"


def test_what_is_no_html_stays_as_it_is() -> None:
    headers, body, _ = answer("/probe", "application/json", b'{"html": "<head>"}')
    assert body == b'{"html": "<head>"}' and headers[b"content-length"] == b"18"


@pytest.mark.parametrize(("path", "method"), [
    ("/_stcore/health", "GET"), ("/static/js/index.js", "GET"), ("/favicon.png", "GET"),
    ("/probe", "HEAD"),
])  # fmt: skip
def test_files_and_services_pass_untouched(path: str, method: str) -> None:
    _, body, seen = answer(path, "text/html", PAGE, method)
    assert body == PAGE and b"accept-encoding" in seen
    assert method == "HEAD" or not is_page(path)


@pytest.mark.parametrize(("origin", "fits"), [
    ("http://evil.example", False), ("http://8.8.8.8:8501", False),
    ("http://localhost:8501", True), ("http://127.0.0.1:8501", True),
])  # fmt: skip
def test_another_site_is_refused_without_asking_anybody(origin, fits, monkeypatch) -> None:
    def asked(*_, **__):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(net_util, "_make_blocking_http_get", asked)
    monkeypatch.setattr("socket.socket.connect", asked)
    assert is_url_from_allowed_origins(origin) is fits


def test_a_page_s_policy_allows_its_own_inline_scripts_alone() -> None:
    page = PAGE.replace(b"<title>", b"<script>\n a = 1\n</script><title>")
    headers, body, _ = answer("/", "text/html", page)
    policy = headers[b"content-security-policy"].decode()
    hashes = inline_hashes(body)
    assert len(hashes) == 2 and all(f"'{one}'" in policy for one in hashes)
    assert inline_hashes(b"<script>x</script>") == (
        "sha256-LXEWQrcmsEQBYnyp+6wy9chTD7GQPMTbAiWHF5IaSIE=",
    )
