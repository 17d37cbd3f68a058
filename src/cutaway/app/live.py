"""The Live page: type a sentence and watch the layers think.

The page only asks and draws; the model lives in a process of its own (`helper`).
"""

import json
import secrets
import shlex
from pathlib import Path
from typing import Any

import streamlit as st

from cutaway.app import forms, live_choices
from cutaway.app import widgets as parts
from cutaway.app.escape import escape_markdown
from cutaway.app.library import Library, current_library, runs_folder
from cutaway.app.live_process import LiveAnswer, LiveProcess, live_processes
from cutaway.core.errors import CutawayError
from cutaway.report.formats import count
from cutaway.studies.live import figures

EXAMPLE = "The film was a delight from start to finish, and the audience loved it."
CUSTOM_QUESTION = "words of my own"
DEFAULT_PROMPT, DEFAULT_WORDS = " All in all, it was", "terrible, great"
MAX_CHARACTERS = 60_000
"""Characters the box takes: some ten thousand words."""
REFRESH_SECONDS = 0.5
"""Seconds between two looks at what has come."""
COLUMN_WIDTH = 44
"""Pixels a column of the grid needs; a narrower console scrolls sideways."""
LiveRequest = dict[str, Any]


def show() -> None:
    """Draw the page."""
    st.title("Live")
    st.caption(
        "Type a sentence and watch the layers think: what each would say next, how the answer to "
        "a question forms, what a probe reads off them, and where the model could have stopped."
    )
    # A form, so that sentence and button arrive together: a click never loses what was typed.
    with st.form("live-form", border=False):
        text = st.text_area(
            "Sentence", value=EXAMPLE, key="live-text", height=80, max_chars=MAX_CHARACTERS
        )
        pressed = st.form_submit_button(
            "Look inside", type="primary", icon=":material/visibility:", key="live-go"
        )
    shelf = current_library()
    model, download = _model(shelf)
    request = {"text": text, **_options(shelf, model)}
    if pressed:
        st.session_state["live-on"] = True
    elif not st.session_state.get("live-on"):
        return
    if not text.strip():
        st.info("There is no sentence yet. Type one above.", icon=":material/edit:")
        return
    try:
        forms.check_readable_paths({"model": model}, [Path.cwd(), runs_folder()])
    except CutawayError as error:
        st.warning(escape_markdown(error), icon=":material/block:")
        return
    helper, number = _send_request(model, download, request)
    _draw(helper, number, request, model)


def _model(shelf: Library) -> tuple[str, bool]:
    """The model's name, and whether it may be fetched from the hub."""
    left, right = st.columns([3, 1], vertical_alignment="bottom")
    model = left.selectbox(
        "Model", live_choices.model_choices(shelf), key="live-model", accept_new_options=True,
        help="A bundled name, a model of your runs, or type any: a folder, a hub id, base+adapter.",
    )  # fmt: skip
    download = right.toggle(
        "May download", key="live-download",
        help="Off: only models on this machine. On: a hub id is fetched when it isn't here.",
    )  # fmt: skip
    return str(model or "").strip(), bool(download)


def _options(shelf: Library, model: str) -> LiveRequest:
    """What the sentence is looked at with."""
    one, two, three = st.columns(3)
    with one:
        chosen = _select_known(
            "Shortcut", live_choices.shortcut_choices(shelf), model, "none: layers as they are"
        )
    with two:
        asked = _question()
    with three:
        probe = _select_known("Probe", live_choices.probe_choices(shelf), model, "none")
    found: LiveRequest = {"shortcut": str(chosen.path) if chosen else None, **asked}
    if probe:
        found |= {"run": str(probe.run), "data": probe.data, "pool": probe.pool}
    return found


def _select_known(label: str, known: list[Any], model: str, nothing: str) -> Any:
    """One of the known things, at first the newest that belongs to the model; or none."""
    fitting = [i for i, one in enumerate(known) if model in _models_of_choice(one)]
    place = st.selectbox(
        label,
        [None, *range(len(known))],
        index=1 + fitting[0] if fitting else 0,
        format_func=lambda i: nothing if i is None else known[i].label,
        key=f"live-{label.lower()}-{model}",
        help=f"Only what lies under the runs folder: {len(known)} found.",
    )
    return None if place is None else known[place]


def _models_of_choice(one: Any) -> tuple[str, ...]:
    return one.models if isinstance(one, live_choices.ProbeChoice) else (one.model,)


def _question() -> LiveRequest:
    """The task, or the reader's own prompt and words."""
    task = st.selectbox(
        "Question", [CUSTOM_QUESTION, *live_choices.task_choices()], key="live-task"
    )
    if task != CUSTOM_QUESTION:
        return {"task": task}
    left, right = st.columns(2)
    prompt = left.text_input("Prompt", value=DEFAULT_PROMPT, key="live-prompt")
    words = right.text_input("Words", value=DEFAULT_WORDS, key="live-words")
    # Boxes lose a space in front, which a prompt behind a sentence needs.
    prompt = prompt if not prompt or prompt[:1].isspace() else f" {prompt}"
    return {"prompt": prompt, "words": words}


def _send_request(model: str, download: bool, request: LiveRequest) -> tuple[LiveProcess, int]:
    """The helper and the number of this request; asked once, however often the page is drawn."""
    state = st.session_state
    client = state.setdefault("live-client", secrets.token_hex(8))
    same = json.dumps([model, download, request], sort_keys=True)
    last = state.get("live-asked")
    if last and last[0] == same:
        return last[1], last[2]
    helper = live_processes().get(model, download=download)
    number = helper.ask(client, request)
    state["live-asked"] = (same, helper, number)
    return helper, number


def _draw(helper: LiveProcess, number: int, request: LiveRequest, model: str) -> None:
    """What has come so far; while more is to come, the page looks again by itself."""
    answer = helper.answer(number)
    if helper.fatal and not answer.over:
        st.warning(escape_markdown(helper.fatal), icon=":material/warning:")
        st.caption(f"What the model fails at: `cutaway check {escape_markdown(model)}`")
        if st.button("Try again", key="live-retry"):
            st.session_state.pop("live-asked", None)
            st.rerun()
        return
    if not answer.over:
        st.fragment(_show_progress, run_every=REFRESH_SECONDS)(helper, number, answer.stage)
    if helper.facts:
        _model_caption(helper.facts, answer)
    _answers(answer, request, model)


def _show_progress(helper: LiveProcess, number: int, stage: tuple[int, bool]) -> None:
    """A line about what is being done; the page is drawn again when there is more to see."""
    answer = helper.answer(number)
    if answer.stage != stage or helper.fatal:
        st.rerun()
    if helper.facts is None:
        said = f"Opening {helper.model} …"
    elif "probe" in answer.progress:
        said = f"Fitting the probes: {answer.progress['probe']:.0%} …"
    else:
        said = "Reading the sentence …"
    st.info(escape_markdown(said), icon=":material/progress_activity:")


def _model_caption(facts: dict[str, Any], answer: LiveAnswer) -> None:
    told = (
        f"{facts['name']}: {facts['kind']}, {facts['layers']} layers of {facts['width']}, "
        f"{count(facts['parameters'])} weights"
    )
    if answer.over and answer.seconds:
        told += f"; answered in {answer.seconds:.1f} s"
    st.caption(escape_markdown(told))


def _answers(answer: LiveAnswer, request: LiveRequest, model: str) -> None:
    """Each part in its place, or the message why it isn't there."""
    if "maps" in answer.errors:
        _warn(f"The shortcut file can't be used: {answer.errors['maps']}")
    if "lens" in answer.errors:
        _warn(answer.errors["lens"])
    if "lens" in answer.parts:
        _layers(answer.parts["lens"], answer.parts.get("exit"), request, model)
    if "words" in answer.errors:
        _warn(answer.errors["words"])
    if "words" in answer.parts:
        _words(answer.parts["words"], request, model)
    if "probe" in answer.errors:
        _warn(answer.errors["probe"])
    if "probe" in answer.parts:
        _probe(answer.parts["probe"], request, model)


def _warn(text: str) -> None:
    st.warning(escape_markdown(text), icon=":material/info:")


def _layers(
    lens: dict[str, Any], stops: dict[str, Any] | None, request: LiveRequest, model: str
) -> None:
    """The grid of words, and where an early exit would stop."""
    if lens["total"] > lens["shown"]:
        st.info(
            f"The sentence has {lens['total']:,} tokens; the grids show the first {lens['shown']}.",
            icon=":material/content_cut:",
        )
    kinds = list(lens["kinds"])
    kind = kinds[-1]
    if len(kinds) > 1:
        names = {"id": "as they are (id)", "mat": "through fitted jumps (mat)"}
        kind = st.segmented_control(
            "Layers are read", kinds, default=kinds[-1], key="live-kind", required=True,
            format_func=lambda one: names.get(one, one),
        )  # fmt: skip
    elif not request.get("shortcut"):
        st.caption(
            "Read as they are. A fitted shortcut shows more of what early layers know: "
            f"`cutaway shortcut fit --model {escape_markdown(model)} --layers to-final`"
        )
    command, wide = lens_command(request, model, request["text"]), _grid_width(lens["tokens"])
    parts.draw_figure(
        "live-lens", figures.lens_figure(lens, str(kind)), command, key="live-lens", wide=wide
    )
    if stops:
        _exit(stops, str(kind), request, model)


def _exit(stops: dict[str, Any], kind: str, request: LiveRequest, model: str) -> None:
    setting = st.select_slider(
        "Lambda: how sure a layer must be to stop", stops["lambdas"], value=0.9, key="live-lambda"
    )
    figure, wide = figures.exit_figure(stops, kind, setting), _grid_width(stops["tokens"])
    parts.draw_figure("live-exit", figure, live_command(request, model), key="live-exit", wide=wide)


def _grid_width(tokens: list[str]) -> int:
    """Pixels that a grid of so many columns needs."""
    return 120 + COLUMN_WIDTH * len(tokens)


def _words(words: dict[str, Any], request: LiveRequest, model: str) -> None:
    """The answers' words through the layers."""
    if words["cut"]:
        st.info(
            f"The text is long: its first {words['cut']:,} tokens were left out for the question.",
            icon=":material/content_cut:",
        )
    ways = {"answers": True, "all words": False}
    way = st.segmented_control(
        "Among", list(ways), default="answers", key="live-among", required=True
    )
    command = live_command(request, model)
    figure = figures.class_words_figure(words, share=ways[str(way)])
    parts.draw_figure("live-words", figure, command, key="live-words")


def _probe(probe: dict[str, Any], request: LiveRequest, model: str) -> None:
    command = f"# the run behind it\n{probe['command']}\n\n{live_command(request, model)}"
    parts.draw_figure("live-probe", figures.probe_figure(probe), command, key="live-probe")


def lens_command(request: LiveRequest, model: str, text: str) -> str:
    """The commands that show the same grid in a terminal and as a web page."""
    words = ["cutaway", "shortcut", "lens", "--model", model, "--text", text]
    if request.get("shortcut"):
        words += ["--shortcut", request["shortcut"]]
    return f"{shlex.join(words)}\n\n{live_command(request, model)}"


def live_command(request: LiveRequest, model: str) -> str:
    """The command that gives the numbers of every figure of this page again."""
    asked = json.dumps({k: v for k, v in request.items() if v is not None}, ensure_ascii=False)
    words = ["python", "-m", "cutaway.studies.live", model, "ask", asked]
    return f"# all numbers of this page, as JSON\n{shlex.join(words)}"
