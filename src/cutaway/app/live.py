"""The Live page: each layer's predictions for a sentence.

The page only sends requests and draws answers; the model is in another process (`live_process`).
"""

import json
import secrets
from pathlib import Path
from typing import Any

import streamlit as st

from cutaway.app import forms, live_choices, widgets
from cutaway.app.escape import escape_markdown
from cutaway.app.library import Library, current_library, runs_folder
from cutaway.app.live_process import LiveAnswer, LiveProcess, live_processes
from cutaway.core.errors import CutawayError
from cutaway.core.shell_words import join_words
from cutaway.report.formats import count
from cutaway.studies.live import figures

EXAMPLE = "The film was a delight from start to finish, and the audience loved it."
CHAT_EXAMPLE = "user: What is the capital of France?\nassistant: Paris.\nuser: And of Italy?"
CUSTOM_QUESTION = "my own words"
DEFAULT_PROMPT, DEFAULT_WORDS = " All in all, it was", "terrible, great"
MAX_CHARACTERS = 60_000
"""Maximum length of the text: about ten thousand words."""
REFRESH_SECONDS = 0.5
"""Seconds between two checks for new parts of the answer."""
COLUMN_WIDTH = 44
"""Pixels per column of the grid; a narrower screen scrolls horizontally."""
LiveRequest = dict[str, Any]


def show() -> None:
    """Draw the page."""
    st.title("Live")
    st.caption(
        "Type a sentence to see each layer's next-word prediction, the probability of each answer "
        "to a question, a probe's output per layer, and where an early exit would stop."
    )
    chat, system = _chat()
    # A form submits sentence and button together: a click never loses what was typed.
    with st.form("live-form", border=False):
        text = _text(chat)
        pressed = st.form_submit_button(
            "Look inside", type="primary", icon=":material/visibility:", key="live-go"
        )
    library = current_library()
    model, download, add_start = _model(library)
    request = {"text": text, **_options(library, model)}
    if add_start:
        request["bos"] = "add"
    if chat:
        request |= {"chat": True, "system": system.strip() or None}
    if pressed:
        st.session_state["live-on"] = True
    elif not st.session_state.get("live-on"):
        return
    if not text.strip():
        st.info("Type a sentence above.", icon=":material/edit:")
        return
    try:
        forms.check_readable_paths({"model": model}, [Path.cwd(), runs_folder()])
    except CutawayError as error:
        st.warning(escape_markdown(error), icon=":material/block:")
        return
    process, number = _send_request(model, download, request)
    _draw(process, number, request, model)


def _chat() -> tuple[bool, str]:
    """Whether the text is a conversation, and the system message before it."""
    left, right = st.columns([1, 3], vertical_alignment="bottom")
    chat = left.toggle(
        "Conversation", key="live-chat",
        help="Read the text in the model's chat template, up to where the assistant's reply "
        "begins. Needs a chat or Instruct model.",
    )  # fmt: skip
    if not chat:
        return False, ""
    return True, right.text_input("System message", key="live-system")


def _text(chat: bool) -> str:
    """The sentence, or the conversation."""
    if not chat:
        return st.text_area(
            "Sentence", value=EXAMPLE, key="live-text", height=80, max_chars=MAX_CHARACTERS
        )
    return st.text_area(
        "Conversation", value=CHAT_EXAMPLE, key="live-messages", height=110,
        max_chars=MAX_CHARACTERS,
        help="A line that begins with user:, assistant: or system: begins a message. A text "
        "without such a line is one message of the user.",
    )  # fmt: skip


def _model(library: Library) -> tuple[str, bool, bool]:
    """The model's name, whether it may be downloaded, and whether the start token is added."""
    left, middle, right = st.columns([3, 1, 1], vertical_alignment="bottom")
    model = left.selectbox(
        "Model", live_choices.model_choices(library), key="live-model", accept_new_options=True,
        help="A bundled name, a model of your runs, or any folder, hub id or base+adapter.",
    )  # fmt: skip
    download = middle.toggle(
        "Allow download", key="live-download",
        help="Off: only models on this machine. On: download a hub id if needed.",
    )  # fmt: skip
    add_start = right.toggle(
        "Add start token", key="live-bos",
        help="Put the model's start token before the text, as --bos add does.",
    )  # fmt: skip
    return str(model or "").strip(), bool(download), bool(add_start)


def _options(library: Library, model: str) -> LiveRequest:
    """The shortcut, question and probe to apply to the sentence."""
    one, two, three = st.columns(3)
    with one:
        chosen = _select_known(
            "Shortcut", live_choices.shortcut_choices(library), model, "none: logit lens"
        )
    with two:
        question = _question()
    with three:
        probe = _select_known("Probe", live_choices.probe_choices(library), model, "none")
    options: LiveRequest = {"shortcut": str(chosen.path) if chosen else None, **question}
    if probe:
        options |= {"run": str(probe.run), "data": probe.data, "pool": probe.pool}
    return options


def _select_known(label: str, known: list[Any], model: str, nothing: str) -> Any:
    """One of the choices or none; at first the newest one for the model."""
    fitting = [i for i, one in enumerate(known) if model in _models_of_choice(one)]
    index = st.selectbox(
        label,
        [None, *range(len(known))],
        index=1 + fitting[0] if fitting else 0,
        format_func=lambda i: nothing if i is None else known[i].label,
        key=f"live-{label.lower()}-{model}",
        help=f"{len(known)} in the runs folder.",
    )
    return None if index is None else known[index]


def _models_of_choice(one: Any) -> tuple[str, ...]:
    return one.models if isinstance(one, live_choices.ProbeChoice) else (one.model,)


def _question() -> LiveRequest:
    """A task, or a prompt and words."""
    task = st.selectbox(
        "Question", [CUSTOM_QUESTION, *live_choices.task_choices()], key="live-task"
    )
    if task != CUSTOM_QUESTION:
        return {"task": task}
    left, right = st.columns(2)
    prompt = left.text_input("Prompt", value=DEFAULT_PROMPT, key="live-prompt")
    words = right.text_input("Words", value=DEFAULT_WORDS, key="live-words")
    # Text boxes strip the leading space that a prompt after a sentence needs.
    prompt = prompt if not prompt or prompt[:1].isspace() else f" {prompt}"
    return {"prompt": prompt, "words": words}


def _send_request(model: str, download: bool, request: LiveRequest) -> tuple[LiveProcess, int]:
    """The process and the number of this request; sent once, however often the page is drawn."""
    state = st.session_state
    client = state.setdefault("live-client", secrets.token_hex(8))
    key = json.dumps([model, download, request], sort_keys=True)
    last = state.get("live-sent")
    if last and last[0] == key:
        return last[1], last[2]
    process = live_processes().get(model, download=download)
    number = process.send(client, request)
    state["live-sent"] = (key, process, number)
    return process, number


def _draw(process: LiveProcess, number: int, request: LiveRequest, model: str) -> None:
    """Draw the parts that have arrived; the page refreshes until the answer is complete."""
    answer = process.answer(number)
    if process.fatal and not answer.over:
        st.warning(escape_markdown(process.fatal), icon=":material/warning:")
        st.caption(f"Check the model with: `cutaway check {escape_markdown(model)}`")
        if st.button("Try again", key="live-retry"):
            st.session_state.pop("live-sent", None)
            st.rerun()
        return
    if not answer.over:
        st.fragment(_show_progress, run_every=REFRESH_SECONDS)(process, number, answer.stage)
    if process.facts:
        _model_caption(process.facts, answer)
    _answers(answer, request, model)


def _show_progress(process: LiveProcess, number: int, stage: tuple[int, bool]) -> None:
    """Show what is being computed; draw the page again when a new part has arrived."""
    answer = process.answer(number)
    if answer.stage != stage or process.fatal:
        st.rerun()
    if process.facts is None:
        status = f"Opening {process.model} …"
    elif "probe" in answer.progress:
        status = f"Fitting the probes: {answer.progress['probe']:.0%} …"
    else:
        status = "Reading the sentence …"
    st.info(escape_markdown(status), icon=":material/progress_activity:")


def _model_caption(facts: dict[str, Any], answer: LiveAnswer) -> None:
    caption = (
        f"{facts['name']}: {facts['kind']}, {facts['layers']} layers of width {facts['width']}, "
        f"{count(facts['parameters'])} parameters"
    )
    if answer.over and answer.seconds:
        caption += f"; answered in {answer.seconds:.1f} s"
    st.caption(escape_markdown(caption))
    for warning in facts.get("warnings", ()):
        _warn(warning)


def _answers(answer: LiveAnswer, request: LiveRequest, model: str) -> None:
    """Draw each part, or the reason why it is missing."""
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
    """Draw the grid of predictions, and where an early exit would stop."""
    if lens["total"] > lens["shown"]:
        st.info(
            f"The conversation has {lens['total']:,} tokens; the grids show the last "
            f"{lens['shown']}."
            if request.get("chat")
            else f"The sentence has {lens['total']:,} tokens; the grids show the first "
            f"{lens['shown']}.",
            icon=":material/content_cut:",
        )
    kinds = list(lens["kinds"])
    kind = kinds[-1]
    if len(kinds) > 1:
        names = {"id": "logit lens (id)", "mat": "linear map (mat)"}
        kind = st.segmented_control(
            "Read layers with", kinds, default=kinds[-1], key="live-kind", required=True,
            format_func=lambda one: names.get(one, one),
        )  # fmt: skip
    elif not request.get("shortcut"):
        st.caption(
            "This is the logit lens. A fitted shortcut decodes early layers better: "
            f"`cutaway shortcut fit --model {escape_markdown(model)} --layers to-final`"
        )
    command, wide = lens_command(request, model, request["text"]), _grid_width(lens["tokens"])
    widgets.draw_figure(
        "live-lens", figures.lens_figure(lens, str(kind)), command, key="live-lens", wide=wide
    )
    if stops:
        _exit(stops, str(kind), request, model)


def _exit(stops: dict[str, Any], kind: str, request: LiveRequest, model: str) -> None:
    setting = st.select_slider(
        "Lambda: the confidence at which to exit", stops["lambdas"], value=0.9, key="live-lambda"
    )
    figure, wide = figures.exit_figure(stops, kind, setting), _grid_width(stops["tokens"])
    widgets.draw_figure(
        "live-exit", figure, live_command(request, model), key="live-exit", wide=wide
    )


def _grid_width(tokens: list[str]) -> int:
    """The width of a grid in pixels."""
    return 120 + COLUMN_WIDTH * len(tokens)


def _words(words: dict[str, Any], request: LiveRequest, model: str) -> None:
    """Draw the probability of each answer per layer."""
    if words["cut"]:
        st.info(
            f"The text is long: its first {words['cut']:,} tokens were dropped for the question.",
            icon=":material/content_cut:",
        )
    ways = {"answers": True, "all words": False}
    way = st.segmented_control(
        "Among", list(ways), default="answers", key="live-among", required=True
    )
    command = live_command(request, model)
    figure = figures.class_words_figure(words, share=ways[str(way)])
    widgets.draw_figure("live-words", figure, command, key="live-words")


def _probe(probe: dict[str, Any], request: LiveRequest, model: str) -> None:
    command = f"# the probe's run\n{probe['command']}\n\n{live_command(request, model)}"
    widgets.draw_figure("live-probe", figures.probe_figure(probe), command, key="live-probe")


def lens_command(request: LiveRequest, model: str, text: str) -> str:
    """The commands that print the same grid in a terminal."""
    words = ["cutaway", "shortcut", "lens", f"--model={model}", f"--text={text}"]
    words += [f"--{name}={request[name]}" for name in ("shortcut", "bos") if request.get(name)]
    if request.get("chat"):
        words += ["--chat", *([f"--system={request['system']}"] if request["system"] else [])]
    return f"{join_words(words)}\n\n{live_command(request, model)}"


def live_command(request: LiveRequest, model: str) -> str:
    """The command that prints the numbers of all figures on this page."""
    request_json = json.dumps(
        {k: v for k, v in request.items() if v is not None}, ensure_ascii=False
    )
    words = ["python", "-m", "cutaway.studies.live", model, "ask", request_json]
    return f"# all numbers of this page, as JSON\n{join_words(words)}"
