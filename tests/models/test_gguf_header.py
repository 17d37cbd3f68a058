"""A GGUF header is read as it was written, and nothing in it is believed without the file."""

import struct

import gguf
import pytest

from cutaway.core.errors import BadModel
from cutaway.models.gguf_header import GGUFArray, read_gguf_header
from tests.models.gguf_samples import sample, small_gguf


@pytest.fixture
def small(tmp_path):
    return small_gguf(tmp_path)


def test_the_header_is_what_the_reference_reader_finds(tmp_path) -> None:
    _, path = sample(tmp_path)
    header, reference = read_gguf_header(path), gguf.GGUFReader(path)
    assert header.architecture == "llama"
    assert header.shapes == {t.name: tuple(t.shape.tolist()[::-1]) for t in reference.tensors}
    assert header.parameters == sum(t.n_elements for t in reference.tensors)
    tokens = reference.fields["tokenizer.ggml.tokens"]
    assert header.metadata["tokenizer.ggml.tokens"] == GGUFArray(8, len(tokens.data))
    assert header.tokens == len(tokens.data)
    assert header.number("llama.block_count") == 3
    assert header.number("tokenizer.ggml.add_bos_token") is None
    assert header.text("no.such.key") == ""


def refusal(path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(BadModel) as caught:
        read_gguf_header(path)
    return str(caught.value)


def test_every_truncated_file_is_refused(small, tmp_path) -> None:
    # Without the last bytes, which only fill up the last tensor's block.
    for length in range(0, len(small) - 32, 7):
        assert "is not a complete GGUF file" in refusal(tmp_path / "x.gguf", small[:length])


HUGE = struct.pack("<Q", 1 << 60)
COUNT = b"tokenizer.ggml.tokens" + struct.pack("<II", 9, 8)
SHAPE = b"token_embd.weight" + struct.pack("<I", 2)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda d: b"GGML" + d[4:], "starts with"),
        (lambda d: d[:4] + struct.pack("<I", 9) + d[8:], "version 9"),
        (lambda d: d[:4] + struct.pack(">I", 3) + d[8:], "byte order"),
        (lambda d: d[:8] + HUGE + d[16:], "tensors, more than fit"),
        (lambda d: d[:16] + HUGE + d[24:], "metadata fields, more than fit"),
        (lambda d: d[:24] + HUGE + d[32:], "ends after the end"),
        (lambda d: d.replace(COUNT + struct.pack("<Q", 2), COUNT + HUGE), "more than fit"),
        (lambda d: d.replace(COUNT, COUNT[:-4] + struct.pack("<I", 99)), "unknown type 99"),
        (lambda d: d.replace(SHAPE, SHAPE[:-4] + struct.pack("<I", 77)), "77 dimensions"),
        (lambda d: d.replace(SHAPE + struct.pack("<Q", 4), SHAPE + HUGE), "ends after the end"),
        (lambda d: d.replace(SHAPE + struct.pack("<Q", 4), SHAPE + bytes(8)), "shape (0, 2)"),
        (lambda d: d.replace(b"output_norm.weight", b"token_embd_weight\xff"), "UTF-8"),
        (lambda d: d.replace(b"ggml.scores", b"ggml.tokens"), "twice"),
    ],
)  # fmt: skip
def test_false_lengths_shapes_and_types_are_refused(small, tmp_path, change, word) -> None:
    changed = change(small)
    assert changed != small
    assert word in refusal(tmp_path / "x.gguf", changed)


def test_tensors_that_share_their_bytes_are_refused(small, tmp_path) -> None:
    """Many tensors at one place would be a small file with a large model."""
    table = b"output_norm.weight" + struct.pack("<IQIQ", 1, 4, 1, 32)
    assert table in small
    overlapping = struct.pack("<IQIQ", 1, 24, 1, 0)
    changed = small.replace(table, b"output_norm.weight" + overlapping)
    assert "overlap" in refusal(tmp_path / "x.gguf", changed)
