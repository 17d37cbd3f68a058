"""`local:N`: N processes on this machine, each with its share of the cores.

The standard library's pool fails every running piece when one of its workers is killed, and can't
be used afterwards. Here only the piece of the killed worker fails, and the worker is replaced.
Workers are reused by the next call, with the model they have loaded.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import wait
from typing import Any

from cutaway.core.errors import RunError
from cutaway.engine.pieces import (
    PendingPiece,
    PieceFunction,
    PieceOptions,
    PieceOutcome,
    PieceQueue,
    PieceResults,
    Pieces,
    forwarded_environment,
)
from cutaway.engine.process_pool_worker import FUNCTION, PIECE, READY, worker_main


def available_cores() -> int:
    """Number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_per_worker(workers: int) -> int:
    """Number of threads of each worker; at most OMP_NUM_THREADS."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    share = max(1, available_cores() // workers)
    return min(share, int(limit)) if limit.isdigit() and int(limit) > 0 else share


def run_pool(
    workers: int, function: PieceFunction, pieces: Pieces, options: PieceOptions
) -> PieceResults:
    """Each piece with its result as they finish; leaving the loop kills the running pieces."""
    queue, pool = PieceQueue(pieces, options), _worker_pool(workers)
    pool.function = function
    try:
        while True:
            pool.dispatch(queue)
            if not pool.busy:
                return
            for task, outcome in pool.collect():
                yield from queue.settle(task, outcome)
    finally:
        pool.cancel()


_worker_pools: dict[int, "WorkerPool"] = {}


def _worker_pool(size: int) -> "WorkerPool":
    """The pool of this size; a new one if that pool is busy."""
    pool = _worker_pools.get(size)
    if pool is None or pool.busy:
        pool = _worker_pools[size] = WorkerPool(size)
    return pool


class PoolWorker:
    """One process, the pipe to it, and the piece it is working on."""

    def __init__(self, threads: int) -> None:
        """Start the process with spawn: forking a process with torch's threads may hang."""
        context = get_context("spawn")
        self.pipe, child_end = context.Pipe()
        self.process = context.Process(target=worker_main, args=(child_end, threads), daemon=True)
        self.process.start()
        child_end.close()
        self.task: PendingPiece | None = None
        self.function: PieceFunction | None = None
        self.started = False

    def start(self, task: PendingPiece, function: PieceFunction) -> None:
        """Send a piece, and the function before it if the worker has another one."""
        self.task = task
        # A worker that died meanwhile is noticed when its pipe is read.
        with suppress(BrokenPipeError, ConnectionResetError):
            if function is not self.function:
                self._send(FUNCTION, forwarded_environment(), function)
                self.function = function
            self._send(PIECE, task.piece)

    def receive(self) -> PieceOutcome | None:
        """The outcome of its piece, also if the worker died; None for its first message."""
        try:
            message = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            return self._death()
        if message == READY:
            self.started = True
            return None
        outcome: PieceOutcome = message
        return outcome

    def kill(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def _send(self, *messages: Any) -> None:
        try:
            for message in messages:
                self.pipe.send(message)
        except (AttributeError, TypeError) as error:
            raise RunError(
                f"This work can't be sent to another process: {error}. "
                "Define it at the top level of an importable module, or use --engine local."
            ) from None

    def _death(self) -> PieceOutcome:
        self.process.join()
        code = self.process.exitcode or 0
        if not self.started:
            raise RunError(
                f"A worker ended before it could start (exit status {code}). A script that uses "
                "several processes needs its calls under: if __name__ == '__main__':"
            )
        names = {one.value: one.name for one in signal.Signals}
        cause = f"signal {-code} ({names.get(-code, 'unknown')})"
        return PieceOutcome(
            reason=f"its worker was ended by {cause if code < 0 else f'exit status {code}'}"
        )


class WorkerPool:
    """At most `size` workers, started when there is something to do."""

    function: PieceFunction
    """What the pieces are for at the moment."""

    def __init__(self, size: int) -> None:
        """No worker is started before the first piece."""
        self.size, self.threads = size, threads_per_worker(size)
        self.workers: list[PoolWorker] = []

    @property
    def busy(self) -> list[PoolWorker]:
        """The workers that have a piece."""
        return [worker for worker in self.workers if worker.task is not None]

    def dispatch(self, queue: PieceQueue) -> None:
        """Send a piece to every idle worker."""
        while len(self.busy) < self.size:
            task = queue.take()
            if task is None:
                return
            self._idle_worker().start(task, self.function)

    def collect(self) -> Iterator[tuple[PendingPiece, PieceOutcome]]:
        """Wait for at least one outcome, then yield all; dead workers leave the pool."""
        ready = wait([worker.pipe for worker in self.busy])
        for worker in [w for w in self.busy if w.pipe in ready]:
            outcome, task = worker.receive(), worker.task
            if outcome is None or task is None:
                continue
            worker.task = None
            if not worker.process.is_alive():
                self._remove(worker)
            yield task, outcome

    def cancel(self) -> None:
        """Kill the workers that have a piece; idle workers stay for the next call."""
        for worker in self.busy:
            self._remove(worker)

    def _remove(self, worker: PoolWorker) -> None:
        self.workers.remove(worker)
        worker.kill()

    def _idle_worker(self) -> PoolWorker:
        for worker in self.workers:
            if worker.task is None:
                return worker
        self.workers.append(PoolWorker(self.threads))
        return self.workers[-1]
