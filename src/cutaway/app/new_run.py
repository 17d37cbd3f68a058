"""The page that starts runs: a form from the spec, a process in the background, its progress."""

import shlex
from pathlib import Path

import streamlit as st

from cutaway.app import forms, jobs
from cutaway.app import widgets as parts
from cutaway.app.escape import escape_markdown
from cutaway.app.library import current_library, runs_folder
from cutaway.catalog import VERBS
from cutaway.core.errors import BadSpec, CutawayError
from cutaway.core.spec import Spec, build_spec
from cutaway.recipe.provenance import command_line
from cutaway.report import formats

# State -> icon, words.
STATE_LABELS: dict[jobs.JobState, tuple[str, str]] = {
    "running": (":material/progress_activity:", "running"),
    "done": (":material/check_circle:", "done"),
    "refused": (":material/block:", "refused: the request can't be carried out as it stands"),
    "failed": (":material/error:", "failed"),
    "cancelled": (
        ":material/cancel:",
        "cancelled; what was finished is kept, starting it again goes on",
    ),
    "killed": (":material/warning:", "was killed before it could end; starting it again goes on"),
}
MAX_JOBS = 8
# Where files go that a run writes under a name of the reader's.
OUTPUT_FOLDER = "made"


def show() -> None:
    """Draw the page."""
    st.title("New run")
    st.caption(
        "Fill in what you want to know; the run goes on in the background, also when you leave."
    )
    method = str(st.selectbox("Method", list(VERBS), key="method"))
    _verb_caption(method)
    with st.form(f"form-{method}", border=True):
        filled = forms.draw_form(VERBS[method].spec_class, VERBS[method].form, key=method)
        with st.container(horizontal=True):
            go = st.form_submit_button("Start", type="primary", icon=":material/play_arrow:")
            guess = st.form_submit_button("Estimate only", icon=":material/timer:")
    if go or guess:
        _submit(method, filled, dry=guess)
    show_jobs()


def _verb_caption(method: str) -> None:
    """What the recipe does, in the words of its spec."""
    st.caption(escape_markdown((VERBS[method].spec_class.__doc__ or "").strip().splitlines()[0]))


def _submit(method: str, filled: forms.FilledForm, *, dry: bool) -> None:
    """Start the run, or say what is wrong with the request where it was made."""
    cls = VERBS[method].spec_class
    try:
        forms.check_readable_paths(filled.values, [Path.cwd(), runs_folder()])
        placed = forms.resolve_output_paths(filled.values, runs_folder() / OUTPUT_FOLDER)
        spec = build_spec(cls, {**forms.provided_values(cls, placed), "runs": str(runs_folder())})
        job = jobs.start_job(runs_folder(), method, command_words(method, spec, dry=dry))
    except BadSpec as error:
        _show_refusal(filled, str(error))
    except CutawayError as error:
        st.error(escape_markdown(error))
    else:
        st.session_state["watched"] = job.id


def _show_refusal(filled: forms.FilledForm, message: str) -> None:
    """What is wrong, under the fields it speaks of; the whole of it under the form."""
    for name, sentence in forms.messages_by_field(message, list(filled.places)).items():
        filled.places[name].markdown(f":red[{escape_markdown(sentence)}]")
    st.error(escape_markdown(message), icon=":material/edit:")


def command_words(method: str, spec: Spec, *, dry: bool) -> list[str]:
    """The words after `cutaway` that build this spec again, and how the answer is wanted."""
    return [*shlex.split(command_line(method, spec))[1:], "--dry-run" if dry else "--json"]


@st.fragment(run_every=1.0)
def show_jobs() -> None:
    """The jobs of this folder, their progress and what can be done about them."""
    found = jobs.list_jobs(runs_folder())
    if not found:
        return
    st.subheader("Started here")
    for job in found[:MAX_JOBS]:
        with st.container(border=True), parts.errors_as_messages():
            _show_job(job, jobs.job_status(job))


def _show_job(job: jobs.BackgroundJob, now: jobs.JobStatus) -> None:
    icon, told = STATE_LABELS[now.state]
    st.markdown(f"{icon} **{job.method}** {told} · {formats.duration(round(now.seconds))}")
    if now.state == "running":
        st.progress(now.share or 0.0, text=escape_markdown(now.line or "starting …"))
    elif now.line and now.state != "done":
        st.warning(escape_markdown(now.line))
    estimate = "--dry-run" in job.words
    if estimate and now.state == "done":
        st.text(jobs.job_output(job))
    with st.expander("Command and log"):
        st.code(job.command, language="bash", wrap_lines=True)
        st.code(jobs.job_log(job) or "nothing yet", language=None, wrap_lines=True)
    with st.container(horizontal=True):
        if not now.over:
            if st.button("Cancel", key=f"cancel-{job.id}", icon=":material/stop:"):
                jobs.cancel_job(job)
        else:
            if now.state == "done" and not estimate:
                _open_result(job)
            if st.button("Remove from list", key=f"forget-{job.id}", type="tertiary"):
                jobs.remove_job(job)
                st.rerun(scope="fragment")


def _open_result(job: jobs.BackgroundJob) -> None:
    """A way to the result; at once when it was started in this window."""
    # A verb of several words (`shortcut fit`) makes runs of its first.
    made, method = jobs.run_address(job), job.method.split()[0]
    if made is None:
        st.code(jobs.job_output(job) or "It gave no answer.", language=None, wrap_lines=True)
        return
    if current_library().find(made, method) is None:
        st.caption("Its result is not in the runs folder any more.")
        return
    wanted = st.button("Open result", key=f"result-{job.id}", type="primary")
    if wanted or st.session_state.get("watched") == job.id:
        st.session_state.pop("watched", None)
        st.session_state[f"{method}-runs"] = [made]
        st.switch_page(st.session_state["pages"][method])
