import socket
import subprocess
import sys

import pytest
from streamlit import config

from cutaway.app import launch
from cutaway.core.errors import BadSpec, Missing


def test_the_server_listens_on_this_machine_only_and_sends_no_statistics() -> None:
    words = launch.streamlit_command(8501, open_browser=False)
    assert words[:4] == [sys.executable, "-m", "streamlit", "run"]
    for flag in (
        "--server.address=127.0.0.1",
        "--browser.gatherUsageStats=false",
        "--server.allowedHosts=127.0.0.1",
        "--server.headless=true",
        "--server.port=8501",
    ):
        assert flag in words
    assert "--server.headless=false" in launch.streamlit_command(8501, open_browser=True)


def test_every_option_is_one_streamlit_knows() -> None:
    known = set(config.get_config_options())
    assert set(launch.STREAMLIT_OPTIONS) <= known


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
