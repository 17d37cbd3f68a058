"""`python -m cutaway.studies.live MODEL`: answers requests about sentences, as JSON lines.

A line on stdin is a request: the fields of LiveSpec with `id` and `client`. For each request the
process writes one line per part as soon as it is computed, and a last one:

    {"id": 3, "part": "lens", "value": {...}}     {"id": 3, "part": "probe", "done": 4, "of": 31}
    {"id": 3, "part": "words", "error": "..."}    {"id": 3, "over": true}

Of several requests by one client only the newest is answered. When stdin closes, the process ends
immediately, so it never outlives the app. `ask JSON` answers one request and ends.
"""

import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from cutaway.console import print_message
from cutaway.core.errors import CutawayError
from cutaway.core.spec import build_spec
from cutaway.methods.shortcut.maps import ShortcutMaps, load_maps
from cutaway.models.chat import with_chat
from cutaway.models.lm import LM
from cutaway.models.load import open_model
from cutaway.models.start_token import with_bos
from cutaway.studies.live.layers import MAP_KINDS, SentenceLens, read_sentence
from cutaway.studies.live.probes import ProbeCache
from cutaway.studies.live.request import LiveSpec
from cutaway.studies.live.words import class_word_probabilities

IDLE_SECONDS = 1800.0
"""Seconds without a request after which the process ends and frees its memory."""
SendMessage = Callable[[dict[str, Any]], None]
JsonMessage = dict[str, Any]


@dataclass
class LiveSession:
    """An open model, and the maps and probes loaded for it so far."""

    lm: LM
    probes: ProbeCache
    maps: tuple[str, ShortcutMaps] | None = None
    started: dict[str, LM] = field(default_factory=dict)
    """The model with and without its start token."""

    def answer(self, spec: LiveSpec, send: SendMessage) -> None:
        """Send every part of the answer as soon as it is computed."""
        if spec.bos not in self.started:
            self.started[spec.bos] = with_bos(self.lm, spec.bos)
        lm = self.started[spec.bos]
        lm = with_chat(lm, system=spec.system, reply=True) if spec.chat else lm
        self._part("lens", send, lambda: self._layers(lm, spec, send))
        if spec.task or spec.words:
            self._part(
                "words", send, lambda: send({"part": "words", "value": self._words(lm, spec)})
            )
        if spec.run:
            self._part(
                "probe", send, lambda: send({"part": "probe", "value": self._probe(spec, send)})
            )

    def _layers(self, lm: LM, spec: LiveSpec, send: SendMessage) -> None:
        self._part("maps", send, lambda: self._load(spec.shortcut))
        seen: SentenceLens = read_sentence(lm, self._maps(spec), spec.text, spec.top)
        send({"part": "lens", "value": seen.plain_lens()})
        send({"part": "exit", "value": seen.plain_exit()})

    def _words(self, lm: LM, spec: LiveSpec) -> Any:
        maps = self._maps(spec)
        kinds = ("id",) if maps is None else tuple(k for k in MAP_KINDS if k in maps.kinds)
        return class_word_probabilities(lm, maps, kinds, spec)

    def _probe(self, spec: LiveSpec, send: SendMessage) -> Any:
        return self.probes.score(
            spec, lambda done, of: send({"part": "probe", "done": done, "of": of})
        )

    def _load(self, path: str | None) -> None:
        """Load the maps; there are none when the file can't be used."""
        if self.maps and self.maps[0] == path:
            return
        self.maps = None
        if path:
            self.maps = (path, load_maps(path, self.lm))

    def _maps(self, spec: LiveSpec) -> ShortcutMaps | None:
        return self.maps[1] if self.maps and self.maps[0] == spec.shortcut else None

    def _part(self, part: str, send: SendMessage, work: Callable[[], None]) -> None:
        """Compute one part; an error is sent, and the other parts continue."""
        try:
            work()
        except CutawayError as error:
            send({"part": part, "error": str(error)})
        except Exception as error:
            traceback.print_exc()
            send({"part": part, "error": f"{type(error).__name__}: {error}"})


def open_session(model: str, *, download: bool) -> LiveSession:
    """Open and check the model; it is downloaded only if allowed."""
    lm = open_model(model, offline=not download, track_changes=False)
    return LiveSession(lm, ProbeCache(lm))


def live_model_facts(lm: LM) -> JsonMessage:
    """Facts about the model for the page."""
    names = ("name", "family", "kind", "layers", "width", "parameters", "context", "notes")
    warnings = [one.message for one in lm.warnings]
    return {name: getattr(lm, name) for name in names} | {"warnings": warnings}


def answer_request(session: LiveSession, request: JsonMessage, send: SendMessage) -> None:
    """Answer one request: all its parts, then the final message."""
    number = request.pop("id", None)
    request.pop("client", None)
    begin = time.monotonic()
    try:
        session.answer(
            build_spec(LiveSpec, request), lambda message: send({"id": number, **message})
        )
    except CutawayError as error:
        send({"id": number, "part": "lens", "error": str(error)})
    send({"id": number, "over": True, "seconds": round(time.monotonic() - begin, 3)})


def serve(
    model: str, source: IO[str], send: SendMessage, *, download: bool, idle: float = IDLE_SECONDS
) -> int:
    """Answer requests until the source ends; returns the exit status."""
    inbox: queue.Queue[JsonMessage] = queue.Queue()
    threading.Thread(target=_read_requests, args=(source, inbox), daemon=True).start()
    try:
        session = open_session(model, download=download)
    except CutawayError as error:
        send({"fatal": str(error)})
        return error.exit_status
    except Exception as error:
        traceback.print_exc()
        send({"fatal": f"{model!r} can't be opened: {type(error).__name__}: {error}"})
        return 1
    send({"ready": live_model_facts(session.lm)})
    for request in _newest_requests(inbox, send, idle):
        answer_request(session, request, send)
    return 0


def _read_requests(source: IO[str], inbox: "queue.Queue[JsonMessage]") -> None:
    for line in source:
        try:
            request = json.loads(line)
        except ValueError:
            continue
        if isinstance(request, dict):
            inbox.put(request)
    # The app has ended: the current request is no longer needed.
    os._exit(0)


def _newest_requests(
    inbox: "queue.Queue[JsonMessage]", send: SendMessage, idle: float
) -> Iterator[JsonMessage]:
    """Requests in order, except those that their client has replaced."""
    waiting: list[JsonMessage] = []
    while True:
        try:
            waiting.append(inbox.get(timeout=0 if waiting else idle))
            continue
        except queue.Empty:
            if not waiting:
                return
        first, *waiting = waiting
        if any(later.get("client") == first.get("client") for later in waiting):
            send({"id": first.get("id"), "over": True, "replaced": True})
        else:
            yield first


def stdout_sender() -> SendMessage:
    """A function that sends messages on the real stdout; other output goes to stderr."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lock = threading.Lock()

    def send(message: JsonMessage) -> None:
        with lock:
            out.write(json.dumps(message, ensure_ascii=True, allow_nan=True) + "\n")
            out.flush()

    return send


def main(words: list[str]) -> int:
    """Run the process with the arguments `MODEL [download] [ask JSON]`."""
    model, *rest = words
    download = rest[:1] == ["download"]
    arguments = rest[1:] if download else rest
    send = stdout_sender()
    if len(arguments) == 2 and arguments[0] == "ask":
        try:
            answer_request(open_session(model, download=download), json.loads(arguments[1]), send)
        except CutawayError as error:
            print_message(str(error))
            return error.exit_status
        return 0
    return serve(model, sys.stdin, send, download=download)
