"""The cutaway drawing in a browser: nothing overlaps, keys and pointer work, nobody is called."""

import pytest

from cutaway.report.drawing.files import write_drawing
from cutaway.report.drawing.svg import svg_text
from tests.report.drawing.examples import all_examples, example, unmeasured

pytestmark = pytest.mark.browser
EXAMPLES = all_examples()

OVERLAPS = """() => {
  const svg = document.querySelector("svg"), frame = svg.getBoundingClientRect();
  const boxes = [...svg.querySelectorAll("text")].map((text) => {
    const { left, right, top, bottom } = text.getBoundingClientRect();
    return { text: text.textContent, word: /wr[df]/.test(text.getAttribute("class")),
             left, right, top, bottom };
  });
  const wrong = boxes.filter((b) => b.left < frame.left || b.right > frame.right + 1
                                  || b.bottom > frame.bottom).map((b) => ["outside", b.text]);
  boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => {
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    // Boxes of words include room above and below the letters.
    if (wide > 1 && high > 4 && !(a.word && b.word)) wrong.push(["overlap", a.text, b.text]);
  }));
  return wrong;
}"""


@pytest.fixture
def drawn(tmp_path):
    def write(drawing) -> str:
        return write_drawing(drawing, tmp_path / "drawing.html").as_uri()

    return write


def test_no_text_overlaps_another_or_leaves_the_picture(open_page, drawn) -> None:
    page = open_page(width=1700).page
    for name, drawing in EXAMPLES.items():
        page.set_content(f'<body style="margin:0">{svg_text(drawing)}</body>')
        assert page.evaluate(OVERLAPS) == [], name


@pytest.mark.parametrize("blocks", [6, 30, 80])
@pytest.mark.parametrize(
    ("width", "height", "scheme"),
    [(1400, 1000, "light"), (1600, 1100, "dark"), (390, 844, "light")],
)
def test_the_page_fits_and_calls_nobody(
    open_page, drawn, pictures, blocks: int, width: int, height: int, scheme: str
) -> None:
    watched = open_page(width=width, height=height, scheme=scheme)
    page = watched.page
    page.goto(drawn(unmeasured(example(blocks), "skill")))
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out"
    assert watched.called == {"file"} and watched.complaints == []
    columns = page.locator(".cd-column").all()
    right = columns[1 if width == 390 else -1].bounding_box()
    # White space at the right of a column may be cut off.
    assert right["x"] + right["width"] - 20 <= width
    assert columns[0].bounding_box()["x"] >= 0
    page.screenshot(path=pictures / f"drawing-{blocks}-{width}-{scheme}.png")


def test_on_a_phone_the_stack_stays_and_tracks_snap_beside_it(open_page, drawn) -> None:
    page = open_page(width=390, height=844).page
    page.goto(drawn(example(30)))
    stack, *tracks = page.locator(".cd-column").all()
    before = stack.bounding_box()
    page.evaluate("document.querySelector('.cd-columns').scrollLeft = 370")
    page.wait_for_timeout(500)
    assert stack.bounding_box() == before
    edge = before["x"] + before["width"]
    assert any(abs(track.bounding_box()["x"] - edge) < 1 for track in tracks)


def test_the_pointer_on_a_layer_shows_all_its_numbers(open_page, drawn) -> None:
    page = open_page(width=1400, height=1000).page
    page.goto(drawn(example(6)))
    page.locator(".cd-column").nth(3).locator(".hit[data-layer='4']").hover()
    card = page.locator(".cd-card")
    assert card.is_visible() and card.locator("strong").inner_text() == "Layer 4"
    names = card.locator("dt").all_inner_texts()
    assert names == ["word", *(track.name for track in example(6).tracks)]
    assert page.locator(".cd-on").count() == 7, "the row is marked in every column"
    page.mouse.move(5, 5)
    assert card.is_hidden() and page.locator(".cd-on").count() == 0


def test_arrow_keys_go_through_the_layers(open_page, drawn) -> None:
    page = open_page(width=1400, height=1000).page
    page.goto(drawn(EXAMPLES["hostile"]))
    for _ in range(3):
        page.keyboard.press("Tab")
    name = page.locator(".cd-card strong")
    for key, layer in (("", "Layer 16"), ("ArrowDown", "Layer 15"), ("ArrowUp", "Layer 16"),
                       ("ArrowUp", "Layer 16"), ("End", "Layer 0 (embeddings)")):  # fmt: skip
        if key:
            page.keyboard.press(key)
        assert name.inner_text() == layer
    page.keyboard.press("Escape")
    assert page.locator(".cd-card").is_hidden()


def test_the_theme_can_be_switched_and_print_is_light(open_page, drawn) -> None:
    page = open_page(scheme="dark").page
    page.goto(drawn(example(6)))
    ink = "getComputedStyle(document.querySelector('.qst')).fill"
    dark = page.evaluate(ink)
    page.emulate_media(media="print")
    light = page.evaluate(ink)
    assert (dark, light) == ("rgb(230, 234, 240)", "rgb(31, 39, 51)")
    page.emulate_media(media="screen")
    page.click("[data-action=theme]")
    assert page.evaluate(ink) == light


def test_the_picture_can_be_saved_from_the_page(open_page, drawn, tmp_path) -> None:
    page = open_page().page
    page.goto(drawn(example(6)))
    with page.expect_download() as download:
        page.click("[data-action=svg]")
    download.value.save_as(tmp_path / "saved.svg")
    assert (tmp_path / "saved.svg").read_text(encoding="utf-8") == svg_text(example(6))


def test_without_scripts_everything_can_be_read(chromium, drawn) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(drawn(example(6)))
    assert "Paris" in page.locator(".cd-stack .hit title").last.text_content()
    page.locator("summary").click()
    assert page.locator("table").is_visible()
    context.close()
