"""`ray`: pieces on a Ray cluster, one started here or one that is there already.

Ray places the pieces, starts and reuses processes, and notices dead ones. How often a piece is
tried is counted here, so that the rule is the same on every engine.
"""

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from cutaway.core.errors import BadSpec, Missing, NoRoom, RunError
from cutaway.engine.pieces import (
    PendingPiece,
    PieceOptions,
    PieceOutcome,
    PieceQueue,
    forwarded_environment,
    try_piece,
)
from cutaway.engine.pool import available_cores

# Pieces handed to Ray before their turn: enough to keep a large cluster busy, few enough that
# leaving the loop leaves little behind.
MAX_SUBMITTED = 512
RAY_MISSING = "--engine ray needs Ray, which is not installed: pip install 'cutaway[ray]'"


def run_ray(
    address: str | None, function: Callable[[Any], Any], pieces: Iterable[Any], terms: PieceOptions
) -> Iterator[tuple[Any, Any]]:
    """Each piece with its result as they finish; leaving the loop ends what is under way."""
    ray = connect(address)
    check_resources(ray, address, terms)
    desk, pending = PieceQueue(pieces, terms), dict[Any, PendingPiece]()
    submit = _submitter(ray, function, terms)
    try:
        while True:
            while len(pending) < MAX_SUBMITTED and (task := desk.take()) is not None:
                pending[submit(task)] = task
            if not pending:
                return
            for ref in _finished(ray, list(pending)):
                task = pending.pop(ref)
                yield from desk.settle(task, _outcome(ray, ref))
    finally:
        for ref in pending:
            # The cluster may be gone already; then there is nothing left to end.
            with suppress(Exception):
                ray.cancel(ref, force=True)


def check_resources(ray: Any, address: str | None, terms: PieceOptions) -> None:
    """NoRoom when this machine can't hold a piece; a cluster may grow, so there it is only said."""
    needs = terms.needs
    asked = {"CPU": needs.cpus, "GPU": needs.gpus, "memory": needs.memory}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(all(has.get(name, 0) >= much for name, much in asked.items()) for has in nodes):
        return
    wanted = f"{needs.cpus:g} CPUs, {needs.gpus:g} GPUs and {needs.memory / 2**20:,.0f} MB"
    if address is None:
        raise NoRoom(f"A piece needs {wanted}, more than this machine has. Try --engine local.")
    terms.say(f"No machine of the cluster has {wanted} for a piece: it waits until one joins.")


def capacity(address: str | None) -> dict[str, float]:
    """The CPUs and GPUs of the cluster, as it is now."""
    found = connect(address).cluster_resources()
    return {"cpus": found.get("CPU", 1.0), "gpus": found.get("GPU", 0.0)}


def import_ray() -> Any:
    """The ray module; Missing with the pip line without it."""
    # No word leaves the machine, and a worker without a GPU must not be told that it has none.
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
    """Ray, with this process connected; a connection that the caller made is used as it is."""
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
"""How often a Ray of one's own is started: on a starved machine its services come up too late."""


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
                    "join a cluster that runs."
                ) from None


def _join(ray: Any, address: str, options: dict[str, Any]) -> None:
    check_listening(address)
    try:
        ray.init(address, **options)
    except Exception as error:
        raise Missing(f"No Ray cluster at {address!r}: {_first_line(error)}") from None


def parse_address(address: str) -> tuple[str, int | None]:
    """Host and port of an address; BadSpec for one that no machine can have."""
    try:
        place = urlsplit(address if "://" in address else f"ray://{address}")
        return place.hostname or "", place.port
    except ValueError as error:
        raise BadSpec(
            f"engine {address!r} is no address ({error}). Write ray://HOST:PORT or HOST:PORT, with "
            "a port within 0-65535."
        ) from None


def check_listening(address: str) -> None:
    """Missing, within seconds, when nothing listens there; Ray itself would wait for minutes."""
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
    ray: Any, function: Callable[[Any], Any], terms: PieceOptions
) -> Callable[[PendingPiece], Any]:
    """How a piece is handed to Ray; the function travels once, not with every piece."""
    try:
        shipped = ray.put(function)
    except TypeError as error:
        raise RunError(f"This work can't be sent to a Ray worker: {_first_line(error)}") from None
    environment, needs = forwarded_environment(), terms.needs
    asked: dict[str, Any] = {"num_cpus": needs.cpus, "num_gpus": needs.gpus, "max_retries": 0}
    if needs.memory:
        asked["memory"] = needs.memory
    remote = ray.remote(run_in_worker).options(**asked)
    # In a list the reference stays a reference; the worker fetches it once.
    return lambda task: remote.remote([shipped], environment, task.piece)


_worker_functions: dict[str, Callable[[Any], Any]] = {}


def run_in_worker(shipped: list[Any], environment: dict[str, str], piece: Any) -> PieceOutcome:
    """One try in a worker; its function, and what that has loaded, stay for the next piece."""
    name = shipped[0].hex()
    if name not in _worker_functions:
        import ray

        os.environ.update(environment)
        _worker_functions.clear()
        _worker_functions[name] = ray.get(shipped[0])
    return try_piece(_worker_functions[name], piece)


def _finished(ray: Any, refs: list[Any]) -> list[Any]:
    """All that are done, once there is one."""
    ray.wait(refs, num_returns=1)
    done, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
    return list(done)


def _outcome(ray: Any, ref: Any) -> PieceOutcome:
    """What a piece gave; a dead worker or a lost node is an outcome too."""
    try:
        outcome: PieceOutcome = ray.get(ref)
    except ray.exceptions.RayError as error:
        return PieceOutcome(reason=f"{type(error).__name__}: {_first_line(error)}")
    return outcome


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
