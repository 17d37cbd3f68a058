"""Messages go to stderr, a quiet console shows nothing, and data can't steer a terminal."""

import ast
import io
import json
import random
import re
import sys
import unicodedata
from pathlib import Path

import polars as pl
import pytest

import cutaway
from cutaway.console import (
    HIDDEN,
    Console,
    PrintableStream,
    SafeConsole,
    json_text,
    messages_on,
    print_json,
    print_json_list,
    print_message,
    print_result,
    printable,
    show_message,
)
from cutaway.report.tables import rich_table


@pytest.mark.parametrize("quiet", [False, True])
def test_messages_go_to_stderr_unless_quiet(quiet, capsys) -> None:
    Console(quiet=quiet).print("[bold] 3 texts")
    out, err = capsys.readouterr()
    assert out == ""
    assert err == ("" if quiet else "[bold] 3 texts\n")


def test_progress_without_a_terminal_is_a_few_plain_lines(capsys, monkeypatch) -> None:
    monkeypatch.setattr("cutaway.console._PlainProgress.EVERY", 0.0)
    with Console().progress("reading", 4) as advance:
        advance(1)
        advance(3, note="9 tokens/s")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("reading:  25%, about 0 s left")
    assert lines[1] == "reading: 100%, about 0 s left 9 tokens/s"
    assert lines[2].startswith("reading: done in")


def test_progress_lines_come_at_most_every_ten_seconds(capsys) -> None:
    with Console().progress("reading", 100) as advance:
        for _ in range(100):
            advance()
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_quiet_progress_shows_nothing(capsys) -> None:
    with Console(quiet=True).progress("reading", 4) as advance:
        advance(4, note="done")
    assert capsys.readouterr().err == ""


def test_progress_on_a_terminal_is_a_bar(capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Console().progress("reading", 2) as advance:
        advance(2, note="fast")
    assert "2/2" in capsys.readouterr().err


def test_a_message_from_deep_inside_is_shown_once_on_the_console_of_the_run(capsys) -> None:
    show_message("a")
    with messages_on(Console()):
        show_message("b")
        show_message("b")
        with messages_on(Console(quiet=True)):
            show_message("c")
        show_message("b")
    show_message("a")
    assert capsys.readouterr().err.split() == ["a", "b", "a"]


def hidden(text: str) -> set[str]:
    """The characters of a text that a terminal would act on."""
    return {c for c in text if c not in "\n\t" and unicodedata.category(c) in HIDDEN}


CONTROLS = [chr(code) for code in (*range(9), *range(11, 32), *range(127, 160))]
OTHERS = ["\u202e", "\u2066", "\u200b", "\u2028", "\ufeff", "\ud800", "a", "[red]", "é", "語", "\n"]


def odd_texts(count: int) -> list[str]:
    rng = random.Random(0)
    pieces = [*CONTROLS, *OTHERS, "\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\x1bP", "\r\x1b[K"]
    return ["".join(rng.choices(pieces, k=rng.randint(1, 12))) for _ in range(count)]


@pytest.mark.parametrize("text", ["plain", "two\nlines\tand a tab", "Grüße, 語", "", "😀"])
def test_ordinary_text_is_unchanged(text) -> None:
    assert printable(text) == text


def test_control_characters_become_visible_symbols() -> None:
    assert printable("\x1b[31mred\x07\x7f\x9b\u202e") == "␛[31mred␇␡��"


def test_no_control_character_gets_through_in_10000_texts() -> None:
    texts = odd_texts(10_000)
    assert not hidden("".join(map(printable, texts)))
    assert all(len(printable(text)) == len(text) for text in texts)


def test_every_way_to_the_terminal_makes_text_printable(capsys) -> None:
    stream = PrintableStream(io.StringIO())  # type: ignore[arg-type]
    for text in odd_texts(300):
        print_result(text)
        print_message(text)
        print_json({text: text})
        Console().print(text)
        with Console().progress(text, 1) as advance:
            advance(1, note=text)
        valid = text.encode("utf-8", "replace").decode()
        SafeConsole(width=80).print(rich_table(pl.DataFrame({f"n{valid}": [valid]})))
        stream.write("." + text)
    got = capsys.readouterr()
    assert not hidden(got.out) and not hidden(got.err)
    assert not hidden(stream.unfiltered.getvalue())


def test_a_progress_bar_on_a_terminal_takes_names_as_they_are(monkeypatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", PrintableStream(out))
    with Console().progress("[red]\x1b]0;title\x07", 1) as advance:
        advance(1, note="\x1b[2J")
    shown = out.getvalue()
    assert "[red]␛]0;title␇" in shown and "␛[2J" in shown
    # What is left are rich's own: colours, and the cursor of the bar.
    assert not re.search(r"\x1b(?!\[[0-9;?]*[a-zA-Z])|\x1b\[2J|\x07", shown)


def test_json_stays_lossless(capsys) -> None:
    text = "".join(CONTROLS) + "\u2028\u202e"
    print_json({"a": text})
    assert json.loads(capsys.readouterr().out) == {"a": text}


def test_a_stream_keeps_the_carriage_return_of_a_progress_bar() -> None:
    out = io.StringIO()
    stream = PrintableStream(out)
    stream.writelines(["\r 10%", "a\rb"])
    stream.flush()
    assert out.getvalue() == "\r 10%a␍b"


def test_only_the_console_writes_to_the_terminal() -> None:
    folder = Path(cutaway.__file__).parent
    found = []
    for path in sorted(folder.rglob("*.py")):
        if path == folder / "console.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            words = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            writes = words == "print" or re.fullmatch(r"sys\.(stdout|stderr)\.write", words)
            rich = isinstance(node, ast.ImportFrom) and node.module == "rich.console"
            names = {one.name for one in node.names} if rich else set()
            if writes or "Console" in names:
                found.append(f"{path.relative_to(folder)}:{node.lineno}")
    assert found == []


@pytest.mark.parametrize("values", [[], [1], [{"a": "\x1b", "b": [1, {"c": None}]}, "é\ud800"]])
def test_a_list_in_parts_is_printed_like_the_whole(values, capsys) -> None:
    print_json(values)
    expected = capsys.readouterr().out
    print_json_list(json_text(one) for one in values)
    assert capsys.readouterr().out == expected
