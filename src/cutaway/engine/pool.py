"""`local:N`: N processes on this machine, each with its share of the cores.

Why not the standard library's pool: when one of its workers is killed, it fails every piece that
was under way and is broken from then on. Here a death costs the piece that died, once, and the
worker is replaced. Workers stay for the next call, with the model they have loaded.
"""

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import wait
from typing import Any

from cutaway.core.errors import RunError
from cutaway.engine.pieces import (
    PendingPiece,
    PieceOptions,
    PieceOutcome,
    PieceQueue,
    forwarded_environment,
)
from cutaway.engine.pool_worker import FUNCTION, PIECE, READY, worker_main


def available_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_per_worker(workers: int) -> int:
    """The cores each of so many workers gets; never more than OMP_NUM_THREADS allows."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    share = max(1, available_cores() // workers)
    return min(share, int(said)) if said.isdigit() and int(said) > 0 else share


def run_pool(
    workers: int, function: Callable[[Any], Any], pieces: Iterable[Any], terms: PieceOptions
) -> Iterator[tuple[Any, Any]]:
    """Each piece with its result as they finish; leaving the loop ends what is under way."""
    desk, team = PieceQueue(pieces, terms), _worker_pool(workers)
    team.begin(function)
    try:
        while True:
            team.feed(desk)
            if not team.busy:
                return
            for task, outcome in team.gather():
                yield from desk.settle(task, outcome)
    finally:
        team.cancel()


_worker_pools: dict[int, "WorkerPool"] = {}


def _worker_pool(size: int) -> "WorkerPool":
    """The team of this size; another one while that is in the middle of something."""
    team = _worker_pools.get(size)
    if team is None or team.busy:
        team = _worker_pools[size] = WorkerPool(size)
    return team


class PoolWorker:
    """One process, the pipe to it, and the piece it has."""

    def __init__(self, threads: int) -> None:
        """Spawned, not forked: a fork of a process with torch's threads may hang."""
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=worker_main, args=(theirs, threads), daemon=True)
        self.process.start()
        theirs.close()
        self.task: PendingPiece | None = None
        self.function: Callable[[Any], Any] | None = None
        self.started = False

    def give(self, task: PendingPiece, function: Callable[[Any], Any]) -> None:
        """The piece is on its way, after the function where the worker has another one."""
        self.task = task
        # A worker that died meanwhile is noticed when its pipe is read.
        with suppress(BrokenPipeError, ConnectionResetError):
            if function is not self.function:
                self._send(FUNCTION, forwarded_environment(), function)
                self.function = function
            self._send(PIECE, task.piece)

    def hear(self) -> PieceOutcome | None:
        """What the worker says; its death is an outcome too; None when it said it is ready."""
        try:
            said = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            return self._death()
        if said == READY:
            self.started = True
            return None
        outcome: PieceOutcome = said
        return outcome

    def end(self) -> None:
        """The process is gone."""
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def _send(self, *things: Any) -> None:
        try:
            for thing in things:
                self.pipe.send(thing)
        except (AttributeError, TypeError) as error:
            raise RunError(
                f"This work can't be sent to another process: {error}. "
                "Define it at the top of an importable module, or use --engine local."
            ) from None

    def _death(self) -> PieceOutcome:
        self.process.join()
        code = self.process.exitcode or 0
        if not self.started:
            raise RunError(
                f"A worker ended before it could start (exit status {code}). A script that uses "
                "several processes needs its calls under: if __name__ == '__main__':"
            )
        how = f"signal {-code} ({_signal_name(-code)})" if code < 0 else f"exit status {code}"
        return PieceOutcome(reason=f"its worker was ended by {how}")


def _signal_name(number: int) -> str:
    known = {one.value: one.name for one in signal.Signals}
    return known.get(number, "unknown")


class WorkerPool:
    """Up to so many workers, started when there is something to do."""

    def __init__(self, size: int) -> None:
        """Nothing is started before the first piece."""
        self.size, self.threads = size, threads_per_worker(size)
        self.workers: list[PoolWorker] = []

    def begin(self, function: Callable[[Any], Any]) -> None:
        """From now on pieces are for this function."""
        self.function = function

    @property
    def busy(self) -> list[PoolWorker]:
        """The workers that have a piece."""
        return [worker for worker in self.workers if worker.task is not None]

    def feed(self, desk: PieceQueue) -> None:
        """Give every idle worker a piece, while there are any."""
        while len(self.busy) < self.size:
            task = desk.take()
            if task is None:
                return
            self._idle().give(task, self.function)

    def gather(self) -> Iterator[tuple[PendingPiece, PieceOutcome]]:
        """The outcomes that are there, once there is one; the dead leave the team."""
        ready = wait([worker.pipe for worker in self.busy])
        for worker in [w for w in self.busy if w.pipe in ready]:
            outcome, task = worker.hear(), worker.task
            if outcome is None or task is None:
                continue
            worker.task = None
            if not worker.process.is_alive():
                self.workers.remove(worker)
                worker.end()
            yield task, outcome

    def cancel(self) -> None:
        """What is under way is ended; idle workers stay for the next call."""
        for worker in self.busy:
            self.workers.remove(worker)
            worker.end()

    def _idle(self) -> PoolWorker:
        for worker in self.workers:
            if worker.task is None:
                return worker
        self.workers.append(PoolWorker(self.threads))
        return self.workers[-1]
