"""Import of the reference's matrices: the numbers come in, and no pickle is ever run."""

import pickle

import pytest
import torch

from cutaway.core.errors import BadData, Mismatch, Missing
from cutaway.methods.shortcut import api as shortcut
from cutaway.methods.shortcut.import_reference import read_tensor
from tests.models.breaking import Trap


def test_matrices_and_parts_are_imported_through_a_safe_loader(tmp_path, tiny_lm) -> None:
    lm, source = tiny_lm("llama"), tmp_path / "reference"
    source.mkdir()
    matrix = torch.randn(32, 32)
    torch.save(matrix, source / "1_3.pt")
    maps = shortcut.import_maps(source, model=lm, out=tmp_path / "theirs.safetensors")
    x = torch.randn(5, 32)
    torch.testing.assert_close(maps.jump(1, 3)(x), (matrix @ x.T).T)
    turned = torch.randn(32, 32).T
    (source / "0_2.pickle").write_bytes(pickle.dumps(turned, protocol=4))
    (source / "p1_1_2.pickle").write_bytes(pickle.dumps(matrix, protocol=4))
    (source / "p1_2_3.pickle").write_bytes(b"an addition: never read")
    maps = shortcut.import_maps(source, model=lm, out=tmp_path / "theirs.safetensors")
    torch.testing.assert_close(maps.jump(0, 2)(x), (turned @ x.T).T)
    torch.testing.assert_close(maps.part(2, "attn")(x), (matrix @ x.T).T)
    (source / "0_3.pkl").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(BadData, match="not a plain tensor file"):
        shortcut.import_maps(source, model=lm, out=tmp_path / "theirs.safetensors")
    with pytest.raises(Missing, match="i_j"):
        shortcut.import_maps(tmp_path, model=lm, out=tmp_path / "theirs.safetensors")


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_a_pickled_matrix_is_parsed_and_never_run(protocol, tmp_path) -> None:
    path = tmp_path / "1_2.pickle"
    for matrix in (torch.randn(300, 300), torch.randn(8, 8).T, torch.randn(9, 4)[5:].double()):
        path.write_bytes(pickle.dumps(matrix, protocol=protocol))
        assert torch.equal(read_tensor(path), matrix)
    for other in ([torch.ones(2, 2), torch.ones(2, 2)], torch.ones(3), [torch.ones(2, 2), 7]):
        path.write_bytes(pickle.dumps(other, protocol=protocol))
        with pytest.raises(ValueError, match="something other than one matrix"):
            read_tensor(path)
    trap = tmp_path / "trap"
    path.write_bytes(pickle.dumps([Trap(str(trap)), torch.ones(2, 2)], protocol=protocol))
    with pytest.raises((ValueError, pickle.UnpicklingError)):
        read_tensor(path)
    assert not trap.exists()


@pytest.mark.parametrize(
    ("name", "width", "message"),
    [
        ("1_9.pt", 32, r"layer 1 to 9; .* has layers 0\.\.3"),
        ("2_1.pt", 32, "layer 2 to 1"),
        ("0_1.pt", 8, r"expected a \(32, 32\) matrix"),
    ],
)
def test_matrices_that_do_not_fit_the_model_are_refused(
    tmp_path, tiny_lm, name, width, message
) -> None:
    torch.save(torch.ones(width, width), tmp_path / name)
    with pytest.raises(Mismatch, match=message):
        shortcut.import_maps(tmp_path, model=tiny_lm("llama"), out=tmp_path / "maps.safetensors")


def test_a_part_of_a_block_that_the_model_lacks_is_refused(tmp_path, tiny_lm) -> None:
    torch.save(torch.ones(32, 32), tmp_path / "0_1.pt")
    torch.save(torch.ones(32, 32), tmp_path / "p7_1_2.pt")
    with pytest.raises(Mismatch, match=r"block 8; .* has blocks 1\.\.3"):
        shortcut.import_maps(tmp_path, model=tiny_lm("llama"), out=tmp_path / "maps.safetensors")
