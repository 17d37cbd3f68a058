"""The page that starts runs: a form made from the spec, and the progress of background jobs."""

from pathlib import Path

import streamlit as st

from cutaway.app import forms, jobs, widgets
from cutaway.app.escape import escape_markdown
from cutaway.app.library import current_library, runs_folder
from cutaway.catalog import VERBS
from cutaway.core.errors import BadSpec, CutawayError
from cutaway.core.spec import Spec, build_spec, spec_digest
from cutaway.recipe.result import command_words
from cutaway.report import formats

# State -> icon, description.
STATE_LABELS: dict[jobs.JobState, tuple[str, str]] = {
    "running": (":material/progress_activity:", "running"),
    "done": (":material/check_circle:", "done"),
    "refused": (":material/block:", "refused: the request is wrong"),
    "failed": (":material/error:", "failed"),
    "cancelled": (
        ":material/cancel:",
        "cancelled; finished pieces are kept, start it again to continue",
    ),
    "killed": (":material/warning:", "was killed before it ended; start it again to continue"),
}
MAX_JOBS = 8
# The folder for output files named in a form.
OUTPUT_FOLDER = "made"


def show() -> None:
    """Draw the page."""
    st.title("New run")
    st.caption(
        "Choose a method and its options; the run continues in the background when you leave."
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
    """Show what the verb does."""
    st.caption(escape_markdown((VERBS[method].spec_class.__doc__ or "").strip().splitlines()[0]))


def form_spec(method: str, values: forms.FormValues, runs: Path) -> Spec:
    """The spec of a filled form; BadSpec if a value is wrong or a path outside the folders."""
    cls = VERBS[method].spec_class
    forms.check_readable_paths(values, [Path.cwd(), runs])
    resolved = forms.resolve_output_paths(values, runs / OUTPUT_FOLDER)
    return build_spec(cls, {**forms.provided_values(cls, resolved), "runs": str(runs)})


def _submit(method: str, filled: forms.FilledForm, *, dry: bool) -> None:
    """Start the run, or show what is wrong with the request."""
    try:
        spec = form_spec(method, filled.values, runs_folder())
        words = [*command_words(method, spec), "--dry-run" if dry else "--json"]
        job = jobs.start_job(runs_folder(), method, words, spec_digest(spec))
    except BadSpec as error:
        _show_refusal(filled, str(error))
    except CutawayError as error:
        st.error(escape_markdown(error))
    else:
        st.session_state["watched"] = job.id


def _show_refusal(filled: forms.FilledForm, message: str) -> None:
    """Show each problem below its field, and the full message below the form."""
    for name, sentence in forms.messages_by_field(message, list(filled.slots)).items():
        filled.slots[name].markdown(f":red[{escape_markdown(sentence)}]")
    st.error(escape_markdown(message), icon=":material/edit:")


@st.fragment(run_every=1.0)
def show_jobs() -> None:
    """Draw the jobs of this folder with their progress and buttons."""
    found = jobs.list_jobs(runs_folder())
    if not found:
        return
    st.subheader("Started here")
    for job in found[:MAX_JOBS]:
        with st.container(border=True), widgets.errors_as_messages():
            _show_job(job, jobs.job_status(job))


def _show_job(job: jobs.BackgroundJob, status: jobs.JobStatus) -> None:
    icon, label = STATE_LABELS[status.state]
    st.markdown(f"{icon} **{job.method}** {label} · {formats.duration(round(status.seconds))}")
    if status.state == "running":
        st.progress(status.share or 0.0, text=escape_markdown(status.line or "starting …"))
    elif status.line and status.state != "done":
        st.warning(escape_markdown(status.line))
    estimate = "--dry-run" in job.words
    if estimate and status.state == "done":
        st.text(jobs.job_output(job))
    with st.expander("Command and log"):
        st.code(job.command, language="bash", wrap_lines=True)
        st.code(jobs.job_log(job) or "nothing yet", language=None, wrap_lines=True)
    with st.container(horizontal=True):
        if not status.over:
            if st.button("Cancel", key=f"cancel-{job.id}", icon=":material/stop:"):
                jobs.cancel_job(job)
        else:
            if status.state == "done" and not estimate:
                _open_result(job)
            if st.button("Remove from list", key=f"forget-{job.id}", type="tertiary"):
                jobs.remove_job(job)
                st.rerun(scope="fragment")


def _open_result(job: jobs.BackgroundJob) -> None:
    """A button to the result; opened at once when the job was started in this window."""
    address, method = jobs.run_address(job), VERBS[job.method].method
    if address is None:
        st.code(jobs.job_output(job) or "It printed nothing.", language=None, wrap_lines=True)
        return
    if current_library().find(address, method) is None:
        st.caption("Its result is no longer in the runs folder.")
        return
    wanted = st.button("Open result", key=f"result-{job.id}", type="primary")
    if wanted or st.session_state.get("watched") == job.id:
        st.session_state.pop("watched", None)
        st.session_state[f"{method}-runs"] = [address]
        st.switch_page(st.session_state["pages"][method])
