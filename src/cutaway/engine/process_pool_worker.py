"""The main loop of a worker process of `local:N`: receive a function, then its pieces.

Imports nothing heavy: the number of threads must be set before torch is loaded.
"""

import os
import sys
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from cutaway.core.errors import RunError
from cutaway.engine.pieces import PieceFunction, try_piece

READY, FUNCTION, PIECE = "ready", "function", "piece"
# OpenMP, the three BLAS libraries and polars read these when they are loaded.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS",
)  # fmt: skip


def worker_main(pipe: Connection, threads: int) -> None:
    """Answer every piece with its outcome until the pipe is closed."""
    for name in THREAD_VARIABLES:
        os.environ[name] = str(threads)
    # These mean that the driver has ended, or no longer listens.
    with suppress(EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        pipe.send(READY)
        function: PieceFunction = _no_function
        while True:
            if pipe.recv() == FUNCTION:
                os.environ.update(pipe.recv())
                function = _receive_function(pipe)
                _limit_torch(threads)
            else:
                pipe.send(try_piece(function, pipe.recv()))


def _receive_function(pipe: Connection) -> PieceFunction:
    """The function; if it can't be loaded here, each of its pieces fails with the reason."""
    try:
        function: PieceFunction = pipe.recv()
    except (ImportError, AttributeError) as error:
        return partial(_no_function, reason=f"the worker can't load the work: {error}")
    return function


def _no_function(_: Any, reason: str = "no work was sent") -> None:
    raise RunError(reason)


def _limit_torch(threads: int) -> None:
    """Set torch's threads if it was loaded before the environment was set."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
