import socket
import subprocess
import sys
from pathlib import Path

import pytest
from streamlit import config

from cutaway.app import launch
from cutaway.core.errors import BadSpec, Missing

# Streamlit's options that the command leaves at their default, which the settings of a folder or of
# the environment can't change (test_server). Each was judged: at its default it lets nobody in,
# sends nothing and loads nothing from outside.
LEFT_AT_DEFAULT = frozenset({
    "browser.serverPort", "client.disableDataExport", "client.showSidebarNavigation",
    "global.appTest", "global.disableWidgetStateDuplicationWarning", "global.e2eTest",
    "global.maxCachedMessageAge", "global.minCachedMessageSize",
    "global.showWarningOnDirectExecution", "global.suppressDeprecationWarnings", "global.unitTest",
    "logger.enableRich", "logger.level", "logger.messageFormat",
    "magic.displayLastExprIfNoSemicolon", "magic.displayRootDocString",
    "runner.cacheBackgroundRefreshMaxWorkers", "runner.cacheBackgroundRefreshTTLMultiplier",
    "runner.cacheHashSeed", "runner.connectionDefaultTTL", "runner.enforceSerializableSessionState",
    "runner.enumCoercion", "runner.fastReruns", "runner.parallelMaxWorkers", "runner.postScriptGC",
    "secrets.files", "server.agentMaxSessions", "server.agentPreviewRows", "server.agentSessionTTL",
    "server.agentWaitTimeout", "server.cookieSecret", "server.corsAllowedOrigins",
    "server.customComponentBaseUrlPath", "server.disconnectedSessionTTL",
    "server.enableExpensiveMemoryStats", "server.enableWebsocketCompression",
    "server.folderWatchBlacklist", "server.folderWatchList", "server.maxCacheDataSize",
    "server.maxMessageSize", "server.maxWidgetStateSize", "server.sslCertFile", "server.sslKeyFile",
    "server.trustedUserHeaders", "server.unsafeMetricsUserAttributes",
    "server.websocketPingInterval", "ui.hideTopBar",
})  # fmt: skip
# The last words of the theme's options: colours, sizes, and fonts (by default the bundled ones).
THEME = frozenset({
    "backgroundColor", "base", "baseFontSize", "baseFontWeight", "baseRadius",
    "blueBackgroundColor", "blueColor", "blueTextColor", "borderColor", "buttonRadius",
    "chartCategoricalColors", "chartDivergingColors", "chartSequentialColors",
    "codeBackgroundColor", "codeFont", "codeFontSize", "codeFontWeight", "codeTextColor",
    "dataframeBorderColor", "dataframeHeaderBackgroundColor", "dataframeHeaderTextColor", "font",
    "fontFaces", "grayBackgroundColor", "grayColor", "grayTextColor", "greenBackgroundColor",
    "greenColor", "greenTextColor", "headingFont", "headingFontSizes", "headingFontWeights",
    "linkColor", "linkUnderline", "metricValueFontSize", "metricValueFontWeight",
    "orangeBackgroundColor", "orangeColor", "orangeTextColor", "paddingBottom", "paddingTop",
    "primaryColor", "redBackgroundColor", "redColor", "redTextColor", "secondaryBackgroundColor",
    "showSidebarBorder", "showWidgetBorder", "textColor", "violetBackgroundColor", "violetColor",
    "violetTextColor", "yellowBackgroundColor", "yellowColor", "yellowTextColor",
})  # fmt: skip


def pinned_options() -> dict[str, list[str]]:
    """The options on the server's command line."""
    options: dict[str, list[str]] = {}
    for word in launch.server_command(8501)[3:]:
        name, _, value = word.removeprefix("--").partition("=")
        options.setdefault(name, []).append(value)
    return options


def test_every_option_of_streamlit_is_pinned_or_judged() -> None:
    known = set(config.get_config_options())
    theme = {name for name in known if name.startswith("theme.")}
    assert {name.rsplit(".", 1)[1] for name in theme} == THEME, "judge the new options"
    judged = set(pinned_options()) | LEFT_AT_DEFAULT | theme
    assert known == judged, f"judge these options: {sorted(known ^ judged)}"
    assert not set(pinned_options()) & LEFT_AT_DEFAULT


def test_the_server_listens_on_this_machine_only_and_sends_no_statistics() -> None:
    assert launch.server_command(8501)[:3] == [sys.executable, "-m", "cutaway.app.server"]
    options = pinned_options()
    for name, value in {
        "server.address": "127.0.0.1", "server.port": "8501", "server.headless": "true",
        "server.enableCORS": "true", "server.enableXsrfProtection": "true",
        "server.enableAgentApi": "false", "server.enableStaticServing": "false",
        "global.developmentMode": "false", "browser.gatherUsageStats": "false",
    }.items():  # fmt: skip
        assert options[name] == [value]
    assert options["server.allowedHosts"] == ["127.0.0.1", "localhost"]
    assert options["client.allowedOrigins"] == ["http://127.0.0.1:8501", "http://localhost:8501"]


def test_the_browser_is_opened_by_a_private_file_that_holds_the_token(monkeypatch) -> None:
    opened = []

    def look(uri: str) -> None:
        path = Path(uri.removeprefix("file://"))
        opened.append((uri, path, path.read_text(), path.stat().st_mode & 0o777))

    monkeypatch.setattr(launch.webbrowser, "open", look)
    monkeypatch.setattr(launch, "REDIRECT_SECONDS", 0.0)
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    with socket.socket() as server, subprocess.Popen(sleeper) as child:
        server.bind((launch.HOST, 0))
        server.listen()
        port = server.getsockname()[1]
        launch.open_when_ready(f"http://127.0.0.1:{port}/?token=a&b=1", port, child)
        child.kill()
    ((uri, path, text, mode),) = opened
    assert "token" not in uri and mode == 0o600 and not path.exists()
    assert f"url=http://127.0.0.1:{port}/?token=a&amp;b=1" in text


def test_no_browser_is_opened_when_the_server_has_ended(monkeypatch) -> None:
    monkeypatch.setattr(launch.webbrowser, "open", lambda uri: pytest.fail("opened"))
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
        launch.open_when_ready("http://127.0.0.1:1/", 1, child)


def test_a_taken_port_gives_the_next_free_one() -> None:
    with socket.socket() as taken:
        taken.bind((launch.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert port < launch.free_port(port) <= port + launch.PORT_TRIES


@pytest.mark.parametrize("port", [0, -1, 70000])
def test_impossible_ports_are_refused(port: int) -> None:
    with pytest.raises(BadSpec, match="65535"):
        launch.free_port(port)


def test_a_file_as_runs_folder_is_refused(tmp_path) -> None:
    (tmp_path / "f").write_text("x")
    with pytest.raises(BadSpec, match="folder"):
        launch.launch(tmp_path / "f")


def test_without_streamlit_the_message_holds_the_pip_line(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(launch, "find_spec", lambda name: None)
    with pytest.raises(Missing, match=r"pip install 'cutaway\[app\]'"):
        launch.launch(tmp_path)


def test_importing_the_launcher_loads_neither_streamlit_nor_torch() -> None:
    code = "import cutaway.app.launch, sys; print({'streamlit', 'torch'} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "set()"
