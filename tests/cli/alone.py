"""A program that runs in a network of its own, with nothing in it but the loopback device."""

import fcntl
import socket
import struct
import subprocess
import sys
import time
import urllib.request

_SET_FLAGS, _UP = 0x8914, 0x1


def raise_loopback() -> None:
    """`lo` is down in a new network; the app needs it to be reached at all."""
    with socket.socket() as any_socket:
        request = struct.pack("16sh14x", b"lo", _UP)
        fcntl.ioctl(any_socket, _SET_FLAGS, request)


def serve(words: list[str], port: int) -> int:
    """Start the app, and 0 when it says that it is well and its page is there."""
    child = subprocess.Popen(words)
    try:
        for _ in range(240):
            time.sleep(0.5)
            if child.poll() is not None:
                return 1
            try:
                well = _read(f"http://127.0.0.1:{port}/_stcore/health")
                page = _read(f"http://127.0.0.1:{port}/")
            except OSError:
                continue
            return 0 if well == "ok" and "<html" in page else 1
        return 1
    finally:
        child.terminate()
        child.wait(timeout=30)


def _read(address: str) -> str:
    with urllib.request.urlopen(address, timeout=5) as answer:
        text: str = answer.read().decode()
        return text


if __name__ == "__main__":
    raise_loopback()
    sys.exit(serve(sys.argv[2:], int(sys.argv[1])))
