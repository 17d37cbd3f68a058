"""`ray`: pieces on a Ray cluster, either started here or already running.

Ray assigns the pieces, starts and reuses processes, and detects dead ones. Retries are counted
here, so that the rule is the same on every engine.
"""

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from cutaway.core.errors import BadSpec, Missing, NoRoom, RunError
from cutaway.engine.pieces import (
    PendingPiece,
    PieceFunction,
    PieceOptions,
    PieceOutcome,
    PieceQueue,
    PieceResults,
    Pieces,
    forwarded_environment,
    try_piece,
)
from cutaway.engine.process_pool import available_cores

# Pieces submitted to Ray at a time: enough to keep a large cluster busy, few enough that little
# has to be cancelled when the loop is left.
MAX_SUBMITTED = 512
RAY_MISSING = "--engine ray needs Ray, which is not installed: pip install 'cutaway[ray]'"


def run_ray(
    address: str | None, function: PieceFunction, pieces: Pieces, options: PieceOptions
) -> PieceResults:
    """Each piece with its result as they finish; leaving the loop cancels the running pieces."""
    ray = connect(address)
    check_resources(ray, address, options)
    queue, pending = PieceQueue(pieces, options), dict[Any, PendingPiece]()
    submit = _submitter(ray, function, options)
    try:
        while True:
            while len(pending) < MAX_SUBMITTED and (task := queue.take()) is not None:
                pending[submit(task)] = task
            if not pending:
                return
            for ref in _finished(ray, list(pending)):
                task = pending.pop(ref)
                yield from queue.settle(task, _outcome(ray, ref))
    finally:
        for ref in pending:
            # If the cluster has ended there is nothing left to cancel.
            with suppress(Exception):
                ray.cancel(ref, force=True)


def check_resources(ray: Any, address: str | None, options: PieceOptions) -> None:
    """Raise NoRoom if a piece doesn't fit on this machine; a cluster may grow, so only notify."""
    needs = options.needs
    required = {"CPU": needs.cpus, "GPU": needs.gpus, "memory": needs.memory}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(all(has.get(name, 0) >= n for name, n in required.items()) for has in nodes):
        return
    text = f"{needs.cpus:g} CPUs, {needs.gpus:g} GPUs and {needs.memory / 2**20:,.0f} MB"
    if address is None:
        raise NoRoom(f"A piece needs {text}, more than this machine has. Try --engine local.")
    options.notify(f"A piece needs {text}, which no machine of the cluster has: waiting for one.")


def capacity(address: str | None) -> dict[str, float]:
    """Current number of CPUs and GPUs in the cluster."""
    resources = connect(address).cluster_resources()
    return {"cpus": resources.get("CPU", 1.0), "gpus": resources.get("GPU", 0.0)}


def import_ray() -> Any:
    """The ray module; Missing with the pip command if it is not installed."""
    # No usage statistics; and workers without a GPU must not hide the GPUs from torch.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise Missing(RAY_MISSING) from None
    return ray


_connected_to: set[str | None] = set()
"""The address that this module connected to, while it is connected."""


def connect(address: str | None) -> Any:
    """The connected ray module; a connection made by the caller is used as it is."""
    ray = import_ray()
    if ray.is_initialized():
        if not _connected_to or address in _connected_to:
            return ray
        ray.shutdown()
    _connected_to.clear()
    quiet = {"logging_level": "ERROR", "log_to_driver": False}
    if address is None:
        _start(ray, quiet)
    else:
        _join(ray, address, quiet)
    _connected_to.add(address)
    return ray


START_TRIES = 3
"""How often to try to start Ray: on a busy machine its services may start too late."""


def _start(ray: Any, options: dict[str, Any]) -> None:
    for left in reversed(range(START_TRIES)):
        try:
            ray.init("local", num_cpus=available_cores(), include_dashboard=False, **options)
            return
        except Exception as error:
            ray.shutdown()
            if not left:
                raise Missing(
                    f"Ray does not start here ({_first_line(error)}). Use --engine local, or "
                    "the address of a running cluster."
                ) from None


def _join(ray: Any, address: str, options: dict[str, Any]) -> None:
    check_listening(address)
    try:
        ray.init(address, **options)
    except Exception as error:
        raise Missing(f"No Ray cluster at {address!r}: {_first_line(error)}") from None


def parse_address(address: str) -> tuple[str, int | None]:
    """Host and port of an address; BadSpec if it is invalid."""
    try:
        parsed = urlsplit(address if "://" in address else f"ray://{address}")
        return parsed.hostname or "", parsed.port
    except ValueError as error:
        raise BadSpec(
            f"engine {address!r} is not a valid address ({error}). Use ray://HOST:PORT or "
            "HOST:PORT, with a port within 0-65535."
        ) from None


def check_listening(address: str) -> None:
    """Raise Missing within seconds if nothing listens there; Ray itself would wait minutes."""
    host, port = parse_address(address)
    if port is None:
        return
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError as error:
        raise Missing(
            f"No Ray cluster at {address!r}: {error}. Start one as docs/howto/cluster.md "
            "shows, or use --engine ray for one on this machine alone."
        ) from None


def _submitter(
    ray: Any, function: PieceFunction, options: PieceOptions
) -> Callable[[PendingPiece], Any]:
    """A function that submits a piece; the piece function is sent once, not with every piece."""
    try:
        function_ref = ray.put(function)
    except TypeError as error:
        raise RunError(f"This work can't be sent to a Ray worker: {_first_line(error)}") from None
    environment, needs = forwarded_environment(), options.needs
    requested: dict[str, Any] = {"num_cpus": needs.cpus, "num_gpus": needs.gpus, "max_retries": 0}
    if needs.memory:
        requested["memory"] = needs.memory
    remote = ray.remote(run_in_worker).options(**requested)
    # Ray does not resolve a reference inside a list: the worker fetches it once.
    return lambda task: remote.remote([function_ref], environment, task.piece)


_worker_functions: dict[str, PieceFunction] = {}


def run_in_worker(refs: list[Any], environment: dict[str, str], piece: Any) -> PieceOutcome:
    """One try in a worker; the function and what it has loaded are reused for the next piece."""
    name = refs[0].hex()
    if name not in _worker_functions:
        import ray

        os.environ.update(environment)
        _worker_functions.clear()
        _worker_functions[name] = ray.get(refs[0])
    return try_piece(_worker_functions[name], piece)


def _finished(ray: Any, refs: list[Any]) -> list[Any]:
    """Wait for at least one reference, then return all that are done."""
    ray.wait(refs, num_returns=1)
    done, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
    return list(done)


def _outcome(ray: Any, ref: Any) -> PieceOutcome:
    """The outcome of a piece; a dead worker or a lost node is one too."""
    try:
        outcome: PieceOutcome = ray.get(ref)
    except ray.exceptions.RayError as error:
        return PieceOutcome(reason=f"{type(error).__name__}: {_first_line(error)}")
    return outcome


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
