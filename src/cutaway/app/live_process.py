"""The process behind the Live page: one per model, started when it is needed, gone with the app.

Models are heavy, and the page must never wait for one. A helper reads requests from its stdin and
answers on its stdout (`cutaway.studies.live.serve`); here a thread collects the answers, and the page
looks at what has come so far. When the app ends, however it ends, the pipe closes and the helper
with it.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from typing import IO, Any

import streamlit as st

MAX_MODELS = 2
"""Models held open at a time; the one unused for longest makes room."""
LIVE_COMMAND = (sys.executable, "-m", "cutaway.studies.live")
MAX_ANSWERS = 8
"""Answers remembered per helper."""


@dataclass
class LiveAnswer:
    """What has come so far about one request."""

    parts: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    progress: dict[str, float] = field(default_factory=dict)
    """Part -> the share of it that is done."""
    over: bool = False
    seconds: float = 0.0

    @property
    def stage(self) -> tuple[int, bool]:
        """Grows when there is something new to draw."""
        return len(self.parts) + len(self.errors), self.over


@dataclass
class LiveProcess:
    """A running process with its model, and the answers it gave."""

    model: str
    process: "subprocess.Popen[str]"
    log: IO[bytes]
    answers: dict[int, LiveAnswer] = field(default_factory=dict)
    facts: dict[str, Any] | None = None
    """What the model is; None until it is open."""
    fatal: str | None = None
    """Why there is no model, or no process any more."""
    used: float = field(default_factory=time.monotonic)
    asked: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, client: str, request: dict[str, Any]) -> int:
        """The number of a new request; an older one of the same client is replaced by it."""
        with self._lock:
            self.asked += 1
            number, self.used = self.asked, time.monotonic()
            self.answers[number] = LiveAnswer()
            for old in sorted(self.answers)[:-MAX_ANSWERS]:
                del self.answers[old]
            line = json.dumps({**request, "id": number, "client": client})
            try:
                assert self.process.stdin is not None
                self.process.stdin.write(line + "\n")
                self.process.stdin.flush()
            except OSError:
                self.fatal = self.fatal or self._why_gone()
        return number

    def answer(self, number: int) -> LiveAnswer:
        """What has come so far; an empty answer for one that is long gone."""
        return self.answers.get(number) or LiveAnswer(over=True)

    @property
    def alive(self) -> bool:
        """Whether it can still answer."""
        return self.fatal is None and self.process.poll() is None

    def listen(self) -> None:
        """Collect what the process says, until it says no more."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                self._hear(json.loads(line))
            except (ValueError, KeyError, TypeError):
                continue
        self.process.wait()
        self.fatal = self.fatal or self._why_gone()

    def _hear(self, message: dict[str, Any]) -> None:
        if "fatal" in message:
            self.fatal = str(message["fatal"])
        elif "ready" in message:
            self.facts = message["ready"]
        elif message["id"] in self.answers:
            answer, part = self.answers[message["id"]], message.get("part", "")
            if "value" in message:
                answer.parts[part] = message["value"]
            elif "error" in message:
                answer.errors[part] = str(message["error"])
            elif "of" in message:
                answer.progress[part] = message["done"] / max(message["of"], 1)
            if message.get("over"):
                answer.seconds = float(message.get("seconds", 0.0))
                answer.over = True

    def _why_gone(self) -> str:
        """The last words of a process that ended by itself."""
        self.log.seek(0)
        lines = self.log.read().decode("utf-8", errors="replace").strip().splitlines()
        why = f" Its last words: {lines[-1][:300]}" if lines else ""
        return (
            f"The process that held {self.model!r} has ended.{why} Look again to start a new one."
        )

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


@dataclass
class LiveProcesses:
    """The helpers of this app, by model."""

    running: dict[tuple[str, bool], LiveProcess] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, model: str, *, download: bool = False) -> LiveProcess:
        """The helper of a model, started when there is none that can answer."""
        with self._lock:
            known = self.running.get((model, download))
            if known is not None and known.alive:
                return known
            self._make_room()
            self.running[model, download] = start_live_process(model, download=download)
            return self.running[model, download]

    def _make_room(self) -> None:
        """End those that can't answer any more, and the longest unused ones that are too many."""
        order = sorted(self.running, key=lambda key: self.running[key].used)
        for key in [key for key in order if not self.running[key].alive]:
            self.running.pop(key).close()
        for key in [key for key in order if key in self.running][
            : len(self.running) + 1 - MAX_MODELS
        ]:
            self.running.pop(key).close()

    def close(self) -> None:
        """End all of them."""
        for helper in self.running.values():
            helper.close()
        self.running.clear()


def start_live_process(model: str, *, download: bool) -> LiveProcess:
    """A new process that opens the model."""
    log = tempfile.TemporaryFile()  # noqa: SIM115 (the helper keeps it open)
    words = [*LIVE_COMMAND, model, *(["download"] if download else [])]
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        encoding="utf-8", errors="replace",
    )  # fmt: skip
    helper = LiveProcess(model, process, log)
    threading.Thread(target=helper.listen, daemon=True).start()
    return helper


@st.cache_resource(show_spinner=False, on_release=LiveProcesses.close)
def live_processes() -> LiveProcesses:
    """The helpers of this app, shared by all its windows."""
    return LiveProcesses()
