"""The processes of the Live page: one per model, started on demand, ended with the app.

A page must never wait for a model, so each model is in its own process, which reads requests from
stdin and answers on stdout (`cutaway.studies.live.serve`). A thread collects the answers, and the
page draws those that have arrived. When the app ends, the pipe closes and the process ends too.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any

import streamlit as st

MAX_MODELS = 2
"""Models open at the same time; the least recently used one is closed first."""
LIVE_COMMAND = (sys.executable, "-m", "cutaway.studies.live")
MAX_ANSWERS = 8
"""Answers kept per process."""


@dataclass
class LiveAnswer:
    """The parts of an answer that have arrived so far."""

    parts: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    progress: dict[str, float] = field(default_factory=dict)
    """Part -> finished fraction."""
    over: bool = False
    seconds: float = 0.0

    @property
    def stage(self) -> tuple[int, bool]:
        """Changes when there is something new to draw."""
        return len(self.parts) + len(self.errors), self.over


@dataclass
class LiveProcess:
    """A running process with its model and its answers."""

    model: str
    process: "subprocess.Popen[str]"
    log: IO[bytes]
    answers: dict[int, LiveAnswer] = field(default_factory=dict)
    facts: dict[str, Any] | None = None
    """Facts about the model; None until it is open."""
    fatal: str | None = None
    """Why the model or the process is not available."""
    used: float = field(default_factory=time.monotonic)
    requests: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Start collecting answers."""
        self.collector = threading.Thread(target=self.collect, daemon=True)
        self.collector.start()

    def send(self, client: str, request: dict[str, Any]) -> int:
        """Send a request, which replaces an older one of the same client; returns its number."""
        with self._lock:
            self.requests += 1
            number, self.used = self.requests, time.monotonic()
            self.answers[number] = LiveAnswer()
            for old in sorted(self.answers)[:-MAX_ANSWERS]:
                del self.answers[old]
            line = json.dumps({**request, "id": number, "client": client})
            try:
                assert self.process.stdin is not None
                self.process.stdin.write(line + "\n")
                self.process.stdin.flush()
            except (OSError, ValueError):
                # The process has ended; `collect` finds out why.
                pass
        return number

    def answer(self, number: int) -> LiveAnswer:
        """The answer so far; an empty one for a request that is no longer kept."""
        return self.answers.get(number) or LiveAnswer(over=True)

    @property
    def alive(self) -> bool:
        """Whether the process can still answer."""
        return self.fatal is None and self.process.poll() is None

    def collect(self) -> None:
        """Collect the messages of the process until it ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                self._handle(json.loads(line))
            except (ValueError, KeyError, TypeError):
                continue
        self.process.wait()
        self.fatal = self.fatal or self._exit_reason()
        with self._lock:
            for file in (self.process.stdin, self.process.stdout, self.log):
                # Closing stdin flushes it, which fails when the process has ended.
                with suppress(OSError):
                    if file is not None:
                        file.close()

    def _handle(self, message: dict[str, Any]) -> None:
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

    def _exit_reason(self) -> str:
        """Why the process ended, with the last line of its log."""
        self.log.seek(0)
        lines = self.log.read().decode("utf-8", errors="replace").strip().splitlines()
        why = f" Its last message: {lines[-1][:300]}" if lines else ""
        return (
            f"The process that held {self.model!r} has ended.{why} Submit again to start a new one."
        )

    def close(self) -> None:
        """End the process; its thread closes the pipes and the log."""
        self.process.kill()
        self.process.wait()
        self.collector.join()


@dataclass
class LiveProcesses:
    """The live processes of this app, by model."""

    running: dict[tuple[str, bool], LiveProcess] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, model: str, *, download: bool = False) -> LiveProcess:
        """The process of a model, started if none is running."""
        with self._lock:
            known = self.running.get((model, download))
            if known is not None and known.alive:
                return known
            self._make_room()
            self.running[model, download] = start_live_process(model, download=download)
            return self.running[model, download]

    def _make_room(self) -> None:
        """Close processes that have ended, then the least recently used until one more fits."""
        order = sorted(self.running, key=lambda key: self.running[key].used)
        for key in [key for key in order if not self.running[key].alive]:
            self.running.pop(key).close()
        unused = [key for key in order if key in self.running]
        for key in unused[: len(unused) + 1 - MAX_MODELS]:
            self.running.pop(key).close()

    def close(self) -> None:
        """End all of them."""
        for process in self.running.values():
            process.close()
        self.running.clear()


def start_live_process(model: str, *, download: bool) -> LiveProcess:
    """Start a process that opens the model."""
    log = tempfile.TemporaryFile()  # noqa: SIM115 (it stays open with the process)
    words = [*LIVE_COMMAND, model, *(["download"] if download else [])]
    child = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        encoding="utf-8", errors="replace",
    )  # fmt: skip
    return LiveProcess(model, child, log)


@st.cache_resource(show_spinner=False, on_release=LiveProcesses.close)
def live_processes() -> LiveProcesses:
    """The live processes of this app, shared by all its windows."""
    return LiveProcesses()
