"""Tests of tensors in files."""

import json
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, load_file, save

from cutaway.core.errors import BadData, Corrupt, Mismatch, UnknownName
from cutaway.store import tensors
from cutaway.store.tensors import DTYPES, TensorLayout


def _bytes(blocks) -> bytes:
    return b"".join(bytes(chunk) for chunk in TensorLayout(blocks).chunks())


def _some(dtype: str, *shape: int) -> torch.Tensor:
    return (torch.arange(torch.Size(shape).numel()).reshape(shape) % 2).to(getattr(torch, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 4), (2, 2, 2)])
def test_the_library_reads_every_type_and_shape_we_write(dtype, shape):
    tensor = _some(dtype, *shape)
    read = load(_bytes({"x": [tensor]}))["x"]
    assert read.dtype == tensor.dtype
    assert torch.equal(read, tensor)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.sampled_from(sorted(DTYPES)))
def test_blocks_are_joined_in_their_order(sizes, dtype):
    blocks = [_some(dtype, size, 3) for size in sizes]
    read = load(_bytes({"x": blocks, "y": [torch.ones(2)]}))
    assert torch.equal(read["x"], torch.cat(blocks))


def test_the_file_is_the_librarys_own_for_the_same_tensors():
    values = {"b": torch.rand(3, 2), "a": torch.arange(5)}
    header = json.loads(save(values)[8 : 8 + struct.unpack("<Q", save(values)[:8])[0]])
    assert TensorLayout({name: [value] for name, value in values.items()}).entries() == header


def test_every_tensor_starts_at_a_multiple_of_its_width():
    blocks = {n: [_some(n, 3)] for n in DTYPES}
    data = _bytes(blocks)
    start = 8 + struct.unpack("<Q", data[:8])[0]
    for name, entry in TensorLayout(blocks).entries().items():
        assert (start + entry["data_offsets"][0]) % blocks[name][0].itemsize == 0


def test_a_view_of_a_transposed_tensor_is_written_as_it_reads():
    tensor = torch.arange(6.0).reshape(2, 3).T
    assert torch.equal(load(_bytes({"x": [tensor]}))["x"], tensor)


def test_an_unknown_type_is_refused_by_name():
    with pytest.raises(UnknownName, match="complex64"):
        TensorLayout({"x": [torch.zeros(2, dtype=torch.complex64)]}).entries()


@pytest.mark.parametrize("other", [torch.zeros(1, 4), torch.zeros(1, 3).half()])
def test_blocks_of_several_forms_are_refused(other):
    with pytest.raises(Mismatch, match="'7/last'"):
        tensors.check_same_form("7/last", [torch.zeros(2, 3), other])


def test_writing_into_a_mapped_tensor_never_reaches_the_file(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(_bytes({"x": [torch.zeros(4)]}))
    tensors.map_tensor(path, "x")[:] = 1.0
    assert load_file(path)["x"].sum() == 0


def _header(entries: object, data: bytes = b"") -> bytes:
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + data


def _entry(shape: list[int], start: int, stop: int, dtype: str = "F32") -> dict[str, object]:
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}}


ATTACKS = {
    "nothing": b"",
    "seven bytes": b"1234567",
    "header beyond the file": struct.pack("<Q", 100) + b"{}",
    "header of an exabyte": struct.pack("<Q", 1 << 60) + b"{}",
    "header length negative": b"\xff" * 8 + b"{}",
    "not json": _header(b"{nonsense"),
    "deep json": _header(b"[" * 50_000),
    "a list": _header([]),
    "broken utf-8": _header(b'{"\xff": 1}'),
    "data beyond the file": _header(_entry([4], 0, 16)),
    "shape that overflows": _header(_entry([1 << 62, 1 << 62], 0, 4), b"0000"),
    "shape larger than its bytes": _header(_entry([1 << 40], 0, 4), b"0000"),
    "offsets swapped": _header(_entry([1], 4, 0), b"0000"),
    "negative shape": _header(_entry([-1], 0, 4), b"0000"),
    "unknown type": _header(_entry([1], 0, 4, "EVIL"), b"0000"),
    "a hole": _header(_entry([1], 4, 8), b"00000000"),
    "bytes left over": _header(_entry([1], 0, 4), b"0000more"),
}


@pytest.mark.parametrize("data", ATTACKS.values(), ids=ATTACKS)
def test_a_malformed_file_is_corrupt_and_allocates_nothing(tmp_path, data):
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    for read in (lambda: tensors.tensor_names(path), lambda: tensors.map_tensor(path, "x")):
        with pytest.raises(Corrupt, match=r"x\.safetensors"):
            read()


@pytest.mark.parametrize("head", [b"PK\x03\x04", b"\x80\x02}q", b"\x80\x04\x95", b"\x80\x05\x95"])
def test_a_pickle_is_refused_by_its_head(tmp_path, head):
    path = tmp_path / "x.safetensors"
    path.write_bytes(head + b"cos\nsystem\n" * 9)
    with pytest.raises(BadData, match="pickle"):
        tensors.refuse_pickle(path)


def test_a_header_whose_length_looks_like_a_pickle_is_none(tmp_path):
    path = tmp_path / "x.safetensors"
    text = json.dumps(_entry([1], 0, 4)).encode().ljust(0x0280)
    path.write_bytes(struct.pack("<Q", 0x0280) + text + b"0000")
    tensors.refuse_pickle(path)
    assert tensors.tensor_names(path) == ("x",)
