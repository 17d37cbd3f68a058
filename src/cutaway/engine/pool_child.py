"""What a worker process of `local:N` does: take a function once, then pieces until the pipe ends.

Imports nothing heavy: the number of threads must be set before torch is loaded.
"""

import os
import sys
from contextlib import suppress
from multiprocessing.connection import Connection

from cutaway.engine.pieces import attempt

READY = "ready"
# OpenMP, the three BLAS libraries and polars read these when they are loaded.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS")


def serve(pipe: Connection, threads: int) -> None:
    """Answer every piece with its outcome; the end of the pipe is the end of the work."""
    for name in THREADS:
        os.environ[name] = str(threads)
    # The driver is gone, or has stopped listening: there is nobody to work for.
    with suppress(EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        function = pipe.recv()
        _limit_torch(threads)
        pipe.send(READY)
        while True:
            piece = pipe.recv()
            pipe.send(attempt(function, piece))


def _limit_torch(threads: int) -> None:
    """Where torch came in before the environment was set."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
