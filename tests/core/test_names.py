import pytest

from cutaway.core.names import short_name, short_names


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("/a/b/lm", "lm"),
        ("./lm", "lm"),
        ("~/x/lm.gguf", "lm.gguf"),
        ("C:\\m\\lm", "lm"),
        ("org/lm", "org/lm"),
    ],
)
def test_paths_lose_their_folders_and_hub_ids_stay(name, short) -> None:
    assert short_name(name) == short


def test_short_names_stay_different() -> None:
    assert short_names(["/a/lm", "/b/lm", "/c/other", "hub/id"]) == {
        "/a/lm": "/a/lm", "/b/lm": "/b/lm", "/c/other": "other", "hub/id": "hub/id",
    }  # fmt: skip
