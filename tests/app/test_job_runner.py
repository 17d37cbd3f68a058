import json
import subprocess
import sys
import time

import pytest

from cutaway.app.job_runner import ENDED_FILE, JOB_FILE, LOG_FILE, OUTPUT_FILE


def run(folder, code: str, argv: list[str] | None = None) -> int:
    command = argv or [sys.executable, "-c", code]
    (folder / JOB_FILE).write_text(json.dumps({"argv": command, "digest": "0" * 64}))
    return subprocess.run(
        [sys.executable, "-m", "cutaway.app.job_runner", str(folder)], timeout=60, check=False
    ).returncode


@pytest.mark.parametrize("status", [0, 2, 130])
def test_the_exit_status_is_recorded_and_passed_on(tmp_path, status: int) -> None:
    before = time.time()
    assert run(tmp_path, f"import sys; sys.exit({status})") == status
    ended = json.loads((tmp_path / ENDED_FILE).read_text())
    assert ended["status"] == status and before <= ended["at"] <= time.time()


def test_output_and_messages_go_to_separate_files(tmp_path) -> None:
    run(tmp_path, "import sys; print('result'); print('message', file=sys.stderr)")
    assert (tmp_path / OUTPUT_FILE).read_text() == "result\n"
    assert (tmp_path / LOG_FILE).read_text() == "message\n"


def test_a_command_that_does_not_exist_ends_with_127(tmp_path) -> None:
    assert run(tmp_path, "", ["/no/such/command"]) == 127
    assert json.loads((tmp_path / ENDED_FILE).read_text())["status"] == 127
