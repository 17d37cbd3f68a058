import json

from cutaway.app import live_choices
from cutaway.app.library import current_library
from tests.report.fake_runs import save_run


def write_maps(folder, model: str = "small-lm", method: str = "shortcut") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shortcut.safetensors").write_bytes(b"x")
    meta = {"method": method, "model": {"name": model}}
    (folder / "shortcut.json").write_text(json.dumps({"meta": meta}))


def test_only_shortcuts_under_the_runs_folder_are_offered(runs, tmp_path) -> None:
    write_maps(runs / "shortcut" / "aaaa")
    write_maps(runs / "made", method="skill")
    write_maps(tmp_path / "elsewhere")
    (runs / "shortcut" / "link").symlink_to(tmp_path / "elsewhere")
    (found,) = live_choices.shortcut_choices(current_library())
    assert found.model == "small-lm" and found.path.parent.name == "aaaa"


def test_a_shortcut_without_a_description_is_offered_so_that_it_can_be_explained(runs) -> None:
    write_maps(runs / "shortcut" / "aaaa")
    (runs / "shortcut" / "aaaa" / "shortcut.json").write_text("[")
    assert [one.model for one in live_choices.shortcut_choices(current_library())] == ["?"]


def test_probes_of_own_runs_are_offered_and_imported_ones_are_not(runs) -> None:
    spec = {"data": ["gen:sentiment"], "pool": ["last", "learned"]}
    save_run(runs, address="a1", spec=spec)
    save_run(runs, address="a2", spec=spec, summary={"imported": True})
    assert [one.pool for one in live_choices.probe_choices(current_library())] == ["last"]


def test_every_task_offered_has_a_word_for_each_class() -> None:
    assert {"sst2", "ag_news"} <= set(
        live_choices.task_choices()
    ) and "mnli" not in live_choices.task_choices()
