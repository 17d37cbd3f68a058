import os
import shutil
import sys
from dataclasses import replace

import pytest

from cutaway.core.errors import BadSpec, Missing
from cutaway.report.drawing.files import WRITERS, check_suffix, picture_size, write_drawing
from cutaway.report.drawing.page import html_text
from cutaway.report.drawing.svg import svg_text
from tests.report.drawing.examples import example


@pytest.mark.parametrize(("suffix", "content"), [(".html", html_text), (".SVG", svg_text)])
def test_the_ending_decides_the_format(tmp_path, suffix: str, content) -> None:
    path = write_drawing(example(2), tmp_path / "new" / f"picture{suffix}")
    assert path.read_text(encoding="utf-8") == content(example(2))
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["picture.gif", "picture", "picture.svg.zip"])
def test_other_endings_are_refused_with_the_known_ones(tmp_path, name: str) -> None:
    with pytest.raises(BadSpec, match=r"\.html, \.svg, \.png, \.pdf"):
        write_drawing(example(2), tmp_path / name)
    with pytest.raises(BadSpec):
        check_suffix(name)
    assert not list(tmp_path.iterdir())


def test_what_can_not_be_drawn_leaves_the_old_file(tmp_path) -> None:
    path = tmp_path / "picture.svg"
    path.write_text("old")
    broken = replace(example(2), tracks=(replace(example(2).tracks[0], kind="nonsense"),))
    with pytest.raises(KeyError):
        write_drawing(broken, path)
    assert path.read_text() == "old"


@pytest.mark.parametrize("suffix", [".png", ".pdf"])
def test_without_the_package_the_message_holds_the_pip_line(tmp_path, monkeypatch, suffix) -> None:
    monkeypatch.setitem(sys.modules, "choreographer", None)
    with pytest.raises(Missing, match=r"pip install 'cutaway\[figures\]'"):
        write_drawing(example(2), tmp_path / f"picture{suffix}")
    assert not list(tmp_path.iterdir())


def test_without_a_browser_the_message_says_how_to_name_one(tmp_path, monkeypatch) -> None:
    chromium = pytest.importorskip("choreographer.browsers.chromium")
    monkeypatch.setattr(chromium.Chromium, "find_browser", classmethod(lambda cls, **_: None))
    with pytest.raises(Missing, match="BROWSER_PATH"):
        write_drawing(example(2), tmp_path / "picture.png")


def test_the_size_of_a_picture_is_in_its_root() -> None:
    wide, high = picture_size(svg_text(example(30)))
    assert 1200 < wide < 1400 and 850 < high < 1050


@pytest.mark.browser
@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".pdf", b"%PDF")])
def test_a_browser_draws_the_whole_picture(tmp_path, monkeypatch, suffix: str, start) -> None:
    chromium = shutil.which("chromium") or os.environ.get("BROWSER_PATH")
    if chromium is None:
        pytest.skip("no chromium on this machine")
    monkeypatch.setenv("BROWSER_PATH", chromium)
    content = write_drawing(example(80), tmp_path / f"picture{suffix}").read_bytes()
    assert content.startswith(start) and set(WRITERS) > {suffix}
    if suffix == ".png":
        wide, high = (int.from_bytes(content[n : n + 4], "big") for n in (16, 20))
        assert (wide, high) == pytest.approx(
            [2 * n for n in picture_size(svg_text(example(80)))], 1
        )
    else:
        assert content.count(b"/Type /Page\n") == 1
