"""The header of a GGUF file: metadata and tensor table, read defensively.

Every count, length, shape and offset is compared with the size of the file before it is used, so
that a small file can't ask for much memory, and the programs that read the file afterwards can
rely on it. Tensor data is not read.
"""

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutaway.core.errors import BadModel

MAGIC, VERSIONS = b"GGUF", (2, 3)
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q",
           11: "<q", 12: "<d"}  # fmt: skip
"""The formats of metadata values of a fixed size, by type number."""
STRING, ARRAY = 8, 9
MAX_DIMENSIONS, MAX_ALIGNMENT = 4, 1 << 20


@dataclass(frozen=True)
class GGUFArray:
    """An array in the metadata: its type number and length; the values are left in the file."""

    type: int
    length: int


@dataclass(frozen=True)
class GGUFHeader:
    """What a GGUF file says about itself."""

    metadata: dict[str, Any]
    """Scalars and texts by key; arrays as `GGUFArray`."""
    shapes: dict[str, tuple[int, ...]]
    """The shape of every tensor."""

    @property
    def architecture(self) -> str:
        """llama.cpp's name of the architecture; empty if there is none."""
        return self.text("general.architecture")

    @property
    def parameters(self) -> int:
        """The number of weights."""
        return sum(map(math.prod, self.shapes.values()))

    @property
    def tokens(self) -> int:
        """The size of the vocabulary; 0 for a file without a tokenizer."""
        found = self.metadata.get("tokenizer.ggml.tokens")
        return found.length if isinstance(found, GGUFArray) and found.type == STRING else 0

    def text(self, key: str) -> str:
        """The text under a key; empty if there is none."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> int | None:
        """The whole number under a key, if there is one."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


class _Broken(Exception):
    """What is wrong with the file."""


class _Cursor:
    """A position in the file that never leaves it."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.place, self.size = data, 0, len(data)

    def skip(self, count: int, what: str) -> int:
        """Go forward; the position before."""
        before = self.place
        if count > self.size - before:
            raise _Broken(f"{what} at byte {before:,} ends after the end of the file")
        self.place = before + count
        return before

    def number(self, form: str, what: str) -> Any:
        return struct.unpack_from(form, self.data, self.skip(struct.calcsize(form), what))[0]

    def text(self, what: str) -> str:
        length = self.number("<Q", f"the length of {what}")
        start = self.skip(length, what)
        try:
            return self.data[start : start + length].decode("utf-8")
        except UnicodeDecodeError:
            raise _Broken(f"{what} at byte {start:,} is not UTF-8 text") from None

    def need_space(self, count: int, each: int, what: str) -> int:
        """The count, if that many items of at least `each` bytes can follow."""
        if count * each > self.size - self.place:
            raise _Broken(f"it announces {count:,} {what}, more than fit into the file")
        return count


def read_gguf_header(path: Path) -> GGUFHeader:
    """The header of a file; BadModel if it isn't a complete GGUF file that can be read."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _header(_Cursor(data))
    except (_Broken, OSError, ValueError) as error:
        raise BadModel(
            f"{path} is not a complete GGUF file: {error}. It is truncated, corrupt or in another "
            "format: download it again."
        ) from None


def _header(cursor: _Cursor) -> GGUFHeader:
    if cursor.data[: len(MAGIC)] != MAGIC:
        raise _Broken(f"it starts with {cursor.data[:4]!r}, expected {MAGIC!r}")
    cursor.skip(len(MAGIC), "the magic number")
    version = cursor.number("<I", "the version")
    if version not in VERSIONS:
        order = ", in the byte order of another machine" if version & 0xFFFF == 0 else ""
        raise _Broken(f"it has version {version}{order}; versions {VERSIONS} can be read")
    tensors, fields = cursor.number("<Q", "the counts"), cursor.number("<Q", "the counts")
    # At least a key's length, a type and a byte; a name's length, counts, type and offset.
    cursor.need_space(fields, 13, "metadata fields")
    metadata: dict[str, Any] = {}
    for _ in range(fields):
        key = cursor.text("a metadata key")
        if key in metadata:
            raise _Broken(f"its metadata has {key!r} twice")
        metadata[key] = _value(cursor, key)
    cursor.need_space(tensors, 24, "tensors")
    return GGUFHeader(metadata, _shapes(cursor, tensors, _alignment(metadata)))


def _value(cursor: _Cursor, key: str) -> Any:
    kind = cursor.number("<I", f"the type of {key!r}")
    if kind in SCALARS:
        return cursor.number(SCALARS[kind], repr(key))
    if kind == STRING:
        return cursor.text(repr(key))
    if kind != ARRAY:
        raise _Broken(f"{key!r} has the unknown type {kind}")
    inner, length = cursor.number("<I", repr(key)), cursor.number("<Q", repr(key))
    if inner in SCALARS:
        cursor.skip(length * struct.calcsize(SCALARS[inner]), repr(key))
    elif inner == STRING:
        for _ in range(cursor.need_space(length, 8, f"texts in {key!r}")):
            cursor.skip(cursor.number("<Q", repr(key)), f"a text of {key!r}")
    else:
        raise _Broken(f"{key!r} is an array of the unknown type {inner}")
    return GGUFArray(inner, length)


def _alignment(metadata: dict[str, Any]) -> int:
    value = metadata.get("general.alignment", 32)
    if not isinstance(value, int) or not 0 < value <= MAX_ALIGNMENT or value & (value - 1):
        raise _Broken(f"general.alignment is {value!r}, expected a power of two")
    return value


def _shapes(cursor: _Cursor, count: int, alignment: int) -> dict[str, tuple[int, ...]]:
    """The tensor table, compared with the data that follows it."""
    shapes: dict[str, tuple[int, ...]] = {}
    ends: list[tuple[str, int]] = []
    total = 0
    for _ in range(count):
        name = cursor.text("the name of a tensor")
        dimensions = cursor.number("<I", repr(name))
        if name in shapes or not 1 <= dimensions <= MAX_DIMENSIONS:
            raise _Broken(f"tensor {name!r} is there twice, or has {dimensions} dimensions")
        shape = tuple(cursor.number("<Q", repr(name)) for _ in range(dimensions))
        kind, offset = cursor.number("<I", repr(name)), cursor.number("<Q", repr(name))
        length = _byte_length(name, shape, kind)
        shapes[name], total = tuple(reversed(shape)), total + length
        ends.append((name, offset + length))
    data = cursor.size - -(-cursor.place // alignment) * alignment
    for name, end in ends:
        if end > data:
            raise _Broken(f"the data of tensor {name!r} ends after the end of the file")
    if total > data:
        raise _Broken("its tensors take more bytes than it has, because they overlap")
    return shapes


def _byte_length(name: str, shape: tuple[int, ...], kind: int) -> int:
    """The bytes of a tensor's data."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        block, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    except (ValueError, KeyError):
        raise _Broken(f"tensor {name!r} has the unknown type {kind}") from None
    if 0 in shape or shape[0] % block:
        raise _Broken(f"tensor {name!r} has shape {shape}, in blocks of {block}")
    return math.prod(shape) // block * size
