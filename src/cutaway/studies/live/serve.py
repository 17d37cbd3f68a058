"""`python -m cutaway.studies.live MODEL`: answers questions about sentences, one JSON line each.

A line on stdin is a request: the fields of LiveSpec, with `id` and `client` beside them. For each
the process writes one line per part as soon as it is known, and a last one:

    {"id": 3, "part": "lens", "value": {...}}     {"id": 3, "part": "probe", "done": 4, "of": 31}
    {"id": 3, "part": "words", "error": "..."}    {"id": 3, "over": true}

Of several requests by one client only the newest counts. When stdin closes, the process ends at
once, whatever it is doing: it never outlives the app. `ask JSON` answers one request and ends.
"""

import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from cutaway.core.errors import CutawayError
from cutaway.core.spec import build_spec
from cutaway.methods.shortcut.maps import ShortcutMaps, load_maps
from cutaway.models.lm import LM
from cutaway.models.load import open_model
from cutaway.studies.live.layers import MAP_KINDS, SentenceLens, read_sentence
from cutaway.studies.live.probes import ProbeCache
from cutaway.studies.live.request import LiveSpec
from cutaway.studies.live.words import class_word_probabilities

IDLE_SECONDS = 1800.0
"""Seconds without a question after which the model's memory is given back."""
SendMessage = Callable[[dict[str, Any]], None]
JsonMessage = dict[str, Any]


@dataclass
class LiveSession:
    """A model that is open, and what was loaded or fitted for it so far."""

    lm: LM
    benches: ProbeCache
    maps: tuple[str, ShortcutMaps] | None = None

    def answer(self, spec: LiveSpec, say: SendMessage) -> None:
        """Every part of the answer, each said as soon as it is there."""
        self._part("lens", say, lambda: self._layers(spec, say))
        if spec.task or spec.words:
            self._part("words", say, lambda: say({"part": "words", "value": self._words(spec)}))
        if spec.run:
            self._part(
                "probe", say, lambda: say({"part": "probe", "value": self._probe(spec, say)})
            )

    def _layers(self, spec: LiveSpec, say: SendMessage) -> None:
        self._part("maps", say, lambda: self._load(spec.shortcut))
        seen: SentenceLens = read_sentence(self.lm, self._maps(spec), spec.text, spec.top)
        say({"part": "lens", "value": seen.plain_lens()})
        say({"part": "exit", "value": seen.plain_exit()})

    def _words(self, spec: LiveSpec) -> Any:
        maps = self._maps(spec)
        kinds = ("id",) if maps is None else tuple(k for k in MAP_KINDS if k in maps.kinds)
        return class_word_probabilities(self.lm, maps, kinds, spec)

    def _probe(self, spec: LiveSpec, say: SendMessage) -> Any:
        return self.benches.score(
            spec, lambda done, of: say({"part": "probe", "done": done, "of": of})
        )

    def _load(self, path: str | None) -> None:
        """Have the maps ready; none are when the file can't be used."""
        if self.maps and self.maps[0] == path:
            return
        self.maps = None
        if path:
            self.maps = (path, load_maps(path, self.lm))

    def _maps(self, spec: LiveSpec) -> ShortcutMaps | None:
        return self.maps[1] if self.maps and self.maps[0] == spec.shortcut else None

    def _part(self, part: str, say: SendMessage, work: Callable[[], None]) -> None:
        """Do a piece of work; what goes wrong in it is said, and the others go on."""
        try:
            work()
        except CutawayError as error:
            say({"part": part, "error": str(error)})
        except Exception as error:
            traceback.print_exc()
            say({"part": part, "error": f"{type(error).__name__}: {error}"})


def open_session(model: str, *, download: bool) -> LiveSession:
    """The model, checked at the door; from this machine only unless a download is allowed."""
    lm = open_model(model, offline=not download, track_changes=False)
    return LiveSession(lm, ProbeCache(lm))


def live_model_facts(lm: LM) -> JsonMessage:
    """What the page says about the model."""
    names = ("name", "family", "kind", "layers", "width", "parameters", "context", "notes")
    return {name: getattr(lm, name) for name in names}


def answer_request(desk: LiveSession, request: JsonMessage, say: SendMessage) -> None:
    """Answer one request: all its parts, then that it is over."""
    number = request.pop("id", None)
    request.pop("client", None)
    begin = time.monotonic()
    try:
        desk.answer(build_spec(LiveSpec, request), lambda message: say({"id": number, **message}))
    except CutawayError as error:
        say({"id": number, "part": "lens", "error": str(error)})
    say({"id": number, "over": True, "seconds": round(time.monotonic() - begin, 3)})


def serve(
    model: str, source: IO[str], say: SendMessage, *, download: bool, idle: float = IDLE_SECONDS
) -> int:
    """Answer requests until the source ends; the exit status."""
    inbox: queue.Queue[JsonMessage] = queue.Queue()
    threading.Thread(target=_read_requests, args=(source, inbox), daemon=True).start()
    try:
        desk = open_session(model, download=download)
    except CutawayError as error:
        say({"fatal": str(error)})
        return error.exit_status
    except Exception as error:
        traceback.print_exc()
        say({"fatal": f"{model!r} can't be opened: {type(error).__name__}: {error}"})
        return 1
    say({"ready": live_model_facts(desk.lm)})
    for request in _newest_requests(inbox, say, idle):
        answer_request(desk, request, say)
    return 0


def _read_requests(source: IO[str], inbox: "queue.Queue[JsonMessage]") -> None:
    for line in source:
        try:
            request = json.loads(line)
        except ValueError:
            continue
        if isinstance(request, dict):
            inbox.put(request)
    # The app is gone: nobody waits for what is being computed.
    os._exit(0)


def _newest_requests(
    inbox: "queue.Queue[JsonMessage]", say: SendMessage, idle: float
) -> Iterator[JsonMessage]:
    """Requests in turn; one that its client has replaced is called over and passed by."""
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
            say({"id": first.get("id"), "over": True, "replaced": True})
        else:
            yield first


def stdout_sender() -> SendMessage:
    """A way to say things on the real stdout, which nothing else writes to from now on."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lock = threading.Lock()

    def say(message: JsonMessage) -> None:
        with lock:
            out.write(json.dumps(message, ensure_ascii=True, allow_nan=True) + "\n")
            out.flush()

    return say


def main(words: list[str]) -> int:
    """The process: `MODEL [download] [ask JSON]`."""
    model, *rest = words
    download = rest[:1] == ["download"]
    asked = rest[1:] if download else rest
    say = stdout_sender()
    if len(asked) == 2 and asked[0] == "ask":
        try:
            answer_request(open_session(model, download=download), json.loads(asked[1]), say)
        except CutawayError as error:
            sys.stderr.write(f"{error}\n")
            return error.exit_status
        return 0
    return serve(model, sys.stdin, say, download=download)
