import json
import os
import signal
import sys
import time

import pytest

from cutaway.app import jobs
from cutaway.app.job_runner import ENDED_FILE, JOB_FILE

DIGEST = "0" * 64


@pytest.fixture
def script(monkeypatch):
    """Lets a Python one-liner stand for the command line."""

    def use(text: str) -> None:
        monkeypatch.setattr(jobs, "CLI_COMMAND", (sys.executable, "-c", text))

    return use


def wait(job: jobs.BackgroundJob, seconds: float = 30) -> jobs.JobStatus:
    end = time.time() + seconds
    while time.time() < end:
        now = jobs.job_status(job)
        if now.over:
            return now
        time.sleep(0.05)
    raise AssertionError(f"still {jobs.job_status(job)}")


def wait_for_log(job: jobs.BackgroundJob, text: str) -> None:
    end = time.time() + 30
    while text not in jobs.job_log(job):
        assert time.time() < end, jobs.job_log(job)
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("status", "state"), [(0, "done"), (2, "refused"), (1, "failed"), (130, "cancelled")]
)
def test_the_exit_status_says_what_became_of_the_job(tmp_path, script, status, state) -> None:
    script(f"import sys; sys.exit({status})")
    assert wait(jobs.start_job(tmp_path, "probe", [], DIGEST)).state == state


def test_the_answer_names_the_run_that_was_made(tmp_path, script) -> None:
    script("import sys; print('{\"address\": \"abc\"}'); print('log', file=sys.stderr)")
    job = jobs.start_job(tmp_path, "probe", ["probe", "--model", "a b"], DIGEST)
    wait(job)
    assert jobs.run_address(job) == "abc" and jobs.job_log(job) == "log\n"
    assert job.command == "cutaway probe --model 'a b'"


@pytest.mark.parametrize("answer", ["", "no json", "[1]", '{"address": 3}'])
def test_an_answer_without_an_address_is_none(tmp_path, script, answer) -> None:
    script(f"print({answer!r})")
    job = jobs.start_job(tmp_path, "probe", [], DIGEST)
    wait(job)
    assert jobs.run_address(job) is None


def test_progress_is_read_from_the_last_line_of_the_log(tmp_path, script) -> None:
    script(
        "import sys, time; print('reading:  45%, about 3 s left', file=sys.stderr, flush=True);"
        "time.sleep(60)"
    )
    job = jobs.start_job(tmp_path, "probe", [], DIGEST)
    wait_for_log(job, "left")
    now = jobs.job_status(job)
    assert (now.state, now.share) == ("running", 0.45) and "3 s left" in now.line
    jobs.cancel_job(job)
    assert wait(job).state == "cancelled"


def test_cancelling_reaches_the_command_as_ctrl_c_does(tmp_path, script) -> None:
    script(
        "import sys, time\n"
        "print('up', file=sys.stderr, flush=True)\n"
        "try:\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    print('kept', file=sys.stderr); sys.exit(130)"
    )
    job = jobs.start_job(tmp_path, "probe", [], DIGEST)
    wait_for_log(job, "up")
    jobs.cancel_job(job)
    assert wait(job).state == "cancelled" and "kept" in jobs.job_log(job)


def test_a_killed_job_is_called_killed_not_running(tmp_path, script) -> None:
    script("import sys, time; print('up', file=sys.stderr, flush=True); time.sleep(60)")
    job = jobs.start_job(tmp_path, "probe", [], DIGEST)
    wait_for_log(job, "up")
    os.killpg(os.getpgid(job.pid), signal.SIGKILL)
    assert wait(job).state == "killed"
    jobs.remove_job(job)
    assert jobs.list_jobs(tmp_path) == []


def test_a_process_number_given_again_is_not_our_job(tmp_path, script) -> None:
    script("pass")
    job = jobs.start_job(tmp_path, "probe", [], DIGEST)
    wait(job)
    told = json.loads((job.folder / JOB_FILE).read_text())
    (job.folder / JOB_FILE).write_text(json.dumps({**told, "pid": os.getpid(), "born": 1.0}))
    (job.folder / ENDED_FILE).unlink()
    assert jobs.job_status(jobs.read_job(job.folder)).state == "killed"


def test_a_command_that_can_not_start_is_failed_with_its_reason(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(jobs, "CLI_COMMAND", ("/no/such/python",))
    job = jobs.start_job(tmp_path, "probe", [], DIGEST)
    assert wait(job).state == "failed" and "No such file" in jobs.job_log(job)


def test_jobs_are_listed_newest_first_and_strangers_passed_over(tmp_path, script) -> None:
    script("pass")
    first = jobs.start_job(tmp_path, "probe", [], DIGEST)
    time.sleep(1.1)
    second = jobs.start_job(tmp_path, "probe", [], DIGEST)
    for name in ("notes", "00000000-zzzzzz", "00000000-aaaaaa"):
        (tmp_path / jobs.JOBS_FOLDER / name).mkdir()
    (tmp_path / jobs.JOBS_FOLDER / "00000001-aaaaaa").mkdir()
    (tmp_path / jobs.JOBS_FOLDER / "00000001-aaaaaa" / JOB_FILE).write_text('{"pid": "x"}')
    assert [job.id for job in jobs.list_jobs(tmp_path)] == [second.id, first.id]
    wait(first)
    wait(second)


def test_a_running_job_is_never_forgotten(tmp_path, script) -> None:
    script("import sys, time; print('up', file=sys.stderr, flush=True); time.sleep(60)")
    job = jobs.start_job(tmp_path, "probe", [], DIGEST)
    wait_for_log(job, "up")
    jobs.remove_job(job)
    assert jobs.list_jobs(tmp_path) == [job]
    jobs.cancel_job(job)
    wait(job)
