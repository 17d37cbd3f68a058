"""Inputs that were right once: bytes flipped, cut, doubled, moved, and words nobody expects."""

import random
from collections.abc import Callable, Iterator, Sequence

# What has broken readers before, in any file of any kind.
NASTY: tuple[bytes, ...] = (
    b"", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n\n", b"\t", b'"', b"'", b"\\", b",", b";",
    b"{", b"}", b"[", b"]", b"[" * 300, b"null", b"NaN", b"-Infinity", b"true", b"1e999", b"-0",
    b"9" * 400, b"0x10", b"${HOME}", b"../../etc", b"%s%n", b"<script>", b"\xed\xa0\x80",
    "\u202e".encode(), "\u0000\U0001f600".encode(), "ı".encode(), b"label", b"text", b" = ",
    b"/ 0 =", b"'''", b'"""', b"#", b"[[a]]", b"PK\x03\x04", b"\x80\x04", b"\xff" * 8,
)  # fmt: skip
Change = Callable[[bytes, random.Random], bytes]


def flip(data: bytes, rng: random.Random) -> bytes:
    """One to eight bytes are others."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 8) if data else 0):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def cut(data: bytes, rng: random.Random) -> bytes:
    """The file ends early."""
    return data[: rng.randint(0, len(data))]


def drop(data: bytes, rng: random.Random) -> bytes:
    """A piece from the middle is gone."""
    first, last = _span(data, rng)
    return data[:first] + data[last:]


def repeat(data: bytes, rng: random.Random) -> bytes:
    """A piece stands several times."""
    first, last = _span(data, rng)
    return data[:last] + data[first:last] * rng.randint(1, 4) + data[last:]


def insert(data: bytes, rng: random.Random) -> bytes:
    """Something nasty stands somewhere."""
    place = rng.randint(0, len(data))
    return data[:place] + rng.choice(NASTY) + data[place:]


def overwrite(data: bytes, rng: random.Random) -> bytes:
    """A piece is replaced by something nasty."""
    first, last = _span(data, rng)
    return data[:first] + rng.choice(NASTY) + data[last:]


def swap(data: bytes, rng: random.Random) -> bytes:
    """Two lines have changed places."""
    lines = data.split(b"\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return b"\n".join(lines)


def noise(_: bytes, rng: random.Random) -> bytes:
    """No file at all: random bytes."""
    return rng.randbytes(rng.randint(0, 64))


CHANGES: tuple[Change, ...] = (flip, cut, drop, repeat, insert, insert, overwrite, swap, noise)


def mutants(seeds: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """`count` broken copies of the seeds, each changed one to three times; the same every time."""
    rng = random.Random(seed)
    for _ in range(count):
        data = rng.choice(seeds)
        for _ in range(rng.randint(1, 3)):
            data = rng.choice(CHANGES)(data, rng)
        yield data


def _span(data: bytes, rng: random.Random) -> tuple[int, int]:
    first = rng.randint(0, len(data))
    return first, min(len(data), first + rng.randint(0, 24))
