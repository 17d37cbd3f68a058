"""Masks are measured one by one, named by kind, size and seed."""

from cutaway.methods.graft.mask_measurement import LEARNED, MaskJob, MaskMeasurement


def test_a_mask_is_named_by_kind_size_and_seed(request_of, tmp_path) -> None:
    request = request_of()
    masks = MaskMeasurement(request, None, tmp_path, None, None)
    job = MaskJob(LEARNED, 10, 3)
    assert masks.skill_path(job) == tmp_path / "learned-10-3.safetensors"
    share = 10 / request.pair.total
    assert masks.cell(10, 3) == {"sparsity": share, "seed": 3, "data": request.split.texts.name}
    assert masks.coordinates.task == "toyfeel"
