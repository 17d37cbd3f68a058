"""Messages and progress go to stderr; a quiet console shows nothing."""

import pytest

from cutaway.console import Console, messages_on, show_message


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
