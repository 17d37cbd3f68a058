from cutaway.report.provenance import DIGEST_LENGTH, provenance
from tests.report.fake_runs import FakeRecord, probe_rows

ROWS = probe_rows(layers=("1",), baselines=False)


def facts(**fields) -> dict[str, str]:
    return dict(provenance(FakeRecord(ROWS, **fields)))


def test_a_run_names_its_model_data_seed_and_cost() -> None:
    model = {"name": "m", "family": "llama", "layers": 12, "width": 64, "parameters": 2_000_000,
             "digest": "ab" * 32}  # fmt: skip
    found = facts(model=model, data={"name": "d", "rows": 2000}, seed=3, versions={"torch": "2"})
    digest = ("ab" * 32)[:DIGEST_LENGTH]
    assert found["model"] == f"m, llama, 12 layers, width 64, 2 M parameters, digest {digest}"
    assert (found["data"], found["seed"], found["versions"]) == ("d, 2,000 rows", "3", "torch 2")
    assert found["time"] == "12 s" and found["peak memory"] == "512 MB"


def test_a_grid_lists_every_model() -> None:
    record = FakeRecord(ROWS, model=[{"name": "a"}, {"name": "b"}])
    assert [value for label, value in provenance(record) if label == "model"] == ["a", "b"]


def test_imported_logs_are_marked_and_unknown_facts_omitted() -> None:
    found = facts(summary={"imported": True}, seed=None, peak_memory_mb=None)
    assert "imported" in found["origin"] and found["seed"] == "–"
    assert "peak memory" not in found and "versions" not in found
