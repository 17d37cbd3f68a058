"""What a worker process of `local:N` does: take a function, then its pieces, until the pipe ends.

Imports nothing heavy: the number of threads must be set before torch is loaded.
"""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from cutaway.core.errors import RunError
from cutaway.engine.pieces import try_piece

READY, FUNCTION, PIECE = "ready", "function", "piece"
# OpenMP, the three BLAS libraries and polars read these when they are loaded.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "POLARS_MAX_THREADS",
)


def worker_main(pipe: Connection, threads: int) -> None:
    """Answer every piece with its outcome; the end of the pipe is the end of the work."""
    for name in THREAD_VARIABLES:
        os.environ[name] = str(threads)
    # The driver is gone, or has stopped listening: there is nobody to work for.
    with suppress(EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        pipe.send(READY)
        function: Callable[[Any], Any] = _no_function
        while True:
            if pipe.recv() == FUNCTION:
                os.environ.update(pipe.recv())
                function = _receive_function(pipe)
                _limit_torch(threads)
            else:
                pipe.send(try_piece(function, pipe.recv()))


def _receive_function(pipe: Connection) -> Callable[[Any], Any]:
    """The function; one that can't be loaded here says so for each of its pieces."""
    try:
        function: Callable[[Any], Any] = pipe.recv()
    except (ImportError, AttributeError) as error:
        return partial(_no_function, reason=f"the worker can't load the work: {error}")
    return function


def _no_function(_: Any, reason: str = "no work was sent") -> None:
    raise RunError(reason)


def _limit_torch(threads: int) -> None:
    """Where torch came in before the environment was set."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
