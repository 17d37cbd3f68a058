import shutil
import sys
import time
from pathlib import Path

import pytest

from cutaway.app import jobs
from cutaway.catalog import VERBS
from cutaway.core.spec import spec_digest
from cutaway.recipe.result import command_words
from tests.app.conftest import texts


@pytest.fixture
def quick(monkeypatch, runs):
    """A command line that makes a run at once and prints its address."""
    text = (
        "import sys, pathlib\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from tests.report.fake_runs import save_run\n"
        f"save_run(pathlib.Path({str(runs)!r}), address='abcd')\n"
        'print(\'{"address": "abcd"}\')'
    )
    monkeypatch.setattr(jobs, "CLI_COMMAND", (sys.executable, "-c", text))


def submit(app, **fields):
    for name, value in fields.items():
        app.text_input(key=f"probe-{name}").set_value(value)
    return next(b for b in app.button if b.label == "Start").click().run()


def wait(runs) -> None:
    end = time.time() + 60
    while not jobs.job_status(jobs.list_jobs(runs)[0]).over:
        assert time.time() < end
        time.sleep(0.1)


def test_an_empty_form_is_refused_in_place_and_starts_nothing(runs, page) -> None:
    app = submit(page("new_run"))
    assert not app.exception
    assert "required" in app.error[0].value
    marked = [m.value for m in app.markdown if m.value.startswith(":red[")]
    assert len(marked) == 2, "each missing field says so itself"
    assert jobs.list_jobs(runs) == []


def test_a_wrong_value_is_refused_with_what_is_allowed(runs, page) -> None:
    app = submit(page("new_run"), model="m", data="d", baselines="bogus")
    assert "Known" in app.error[0].value and jobs.list_jobs(runs) == []


def test_a_path_outside_is_refused(runs, page) -> None:
    app = submit(page("new_run"), model="m", data="/etc/passwd")
    assert "outside" in app.error[0].value and jobs.list_jobs(runs) == []


def test_a_start_runs_the_real_command_with_the_forms_values(runs, page, quick) -> None:
    app = submit(page("new_run"), model="small-lm", data="gen:sentiment", layers="0,6; mean:all")
    assert not app.exception
    (job,) = jobs.list_jobs(runs)
    assert job.words[:3] == ("probe", f"--runs={runs}", "--model=small-lm")
    assert "--layers=mean:all" in job.words and job.words[-1] == "--json"
    assert job.command in texts(app)
    wait(runs)


def test_a_finished_job_leads_to_its_result(runs, page, quick) -> None:
    submit(page("new_run"), model="m", data="d")
    wait(runs)
    app = page("new_run")
    assert not app.exception and "done" in texts(app)
    assert any(b.label == "Open result" for b in app.button)


def test_a_killed_job_is_explained_and_can_be_removed(runs, page, monkeypatch) -> None:
    monkeypatch.setattr(jobs, "is_running", lambda job: False)
    monkeypatch.setattr(jobs, "CLI_COMMAND", (sys.executable, "-c", "import time; time.sleep(3)"))
    job = jobs.start_job(runs, "probe", ["probe"], "0" * 64)
    app = page("new_run")
    assert "was killed" in texts(app)
    next(b for b in app.button if b.label == "Remove from list").click().run()
    assert jobs.list_jobs(runs) == [] and not job.folder.exists()


def test_a_refused_job_shows_the_commands_own_words(runs, page, monkeypatch) -> None:
    script = "import sys; print('cutaway: Unknown model <b>x</b>.', file=sys.stderr); sys.exit(2)"
    monkeypatch.setattr(jobs, "CLI_COMMAND", (sys.executable, "-c", script))
    jobs.start_job(runs, "probe", ["probe"], "0" * 64)
    wait(runs)
    app = page("new_run")
    assert "Unknown model \\<b\\>" in app.warning[0].value


def test_an_estimate_asks_for_a_dry_run_and_shows_the_answer(runs, page, monkeypatch) -> None:
    monkeypatch.setattr(jobs, "CLI_COMMAND", (sys.executable, "-c", "print('about 3 minutes')"))
    app = page("new_run")
    for name in ("model", "data"):
        app.text_input(key=f"probe-{name}").set_value("x")
    next(b for b in app.button if b.label == "Estimate only").click().run()
    assert jobs.list_jobs(runs)[0].words[-1] == "--dry-run"
    wait(runs)
    assert "about 3 minutes" in texts(page("new_run"))


def test_a_result_that_is_gone_is_said_so(runs, page, quick) -> None:
    submit(page("new_run"), model="m", data="d")
    wait(runs)
    shutil.rmtree(runs / "probe")
    assert "no longer in the runs folder" in texts(page("new_run"))


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_form_that_refuses_what_is_missing_in_place(runs, page, verb) -> None:
    app = page("new_run", method=verb)
    assert not app.exception
    next(b for b in app.button if b.label == "Start").click().run()
    assert not app.exception
    needed = [n for n, info in VERBS[verb].spec_class.model_fields.items() if info.is_required()]
    if needed:
        assert all(name in app.error[0].value.replace("\\", "") for name in needed)
        assert jobs.list_jobs(runs) == []


def test_a_file_to_write_lands_in_the_runs_folder(runs, page, monkeypatch) -> None:
    monkeypatch.setattr(jobs, "CLI_COMMAND", (sys.executable, "-c", "print('{}')"))
    app = page("new_run", method="graft export")
    for name, value in (("skill", "a.safetensors"), ("out", "mine")):
        app.text_input(key=f"graft export-{name}").set_value(value)
    next(b for b in app.button if b.label == "Start").click().run()
    assert f"--out={runs / 'made' / 'mine'}" in jobs.list_jobs(runs)[0].words
    wait(runs)


def test_the_fields_on_top_are_fields_of_their_spec() -> None:
    for verb, names in ((row.words, row.form) for row in VERBS.values()):
        assert set(names) <= set(VERBS[verb].spec_class.model_fields), verb


def test_a_value_that_looks_like_a_flag_stays_a_value_of_the_real_command(
    runs, page, tmp_path
) -> None:
    app = page("new_run", method="graft export")
    for name, value in (("skill", f"--out={tmp_path}/elsewhere"), ("out", "--print-spec")):
        app.text_input(key=f"graft export-{name}").set_value(value)
    next(b for b in app.button if b.label == "Start").click().run()
    wait(runs)
    (job,) = jobs.list_jobs(runs)
    assert f"--skill=--out={tmp_path}/elsewhere" in job.words
    assert jobs.job_status(job).state == "refused" and "--out=" in jobs.job_log(job)
    assert not (tmp_path / "elsewhere").exists() and not jobs.job_output(job)


def test_a_command_that_gives_another_spec_than_the_form_is_refused(runs) -> None:
    shown = VERBS["graft overlap"].spec_class(skill=["a", "b"], runs=str(runs))
    words = [*command_words("graft overlap", shown), "--print-spec"]
    for digest, state in ((spec_digest(shown), "done"), ("0" * 64, "refused")):
        job = jobs.start_job(runs, "graft overlap", words, digest)
        wait(runs)
        end = time.monotonic() + 60
        while jobs.job_status(job).state == "running" and time.monotonic() < end:
            time.sleep(0.05)
        assert jobs.job_status(job).state == state
        assert bool(jobs.job_output(job)) is (state == "done")
    assert "does not give the options" in jobs.job_log(job)
