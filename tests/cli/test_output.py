import json
from dataclasses import fields
from pathlib import Path

from cutaway.cli.output import SpecOverrides, StudyOptions
from cutaway.console import print_json, print_message, print_result
from cutaway.recipe.options import RunOptions


def test_results_go_to_stdout_and_messages_to_stderr_with_one_newline(capsys) -> None:
    print_result("result")
    print_result("line\n")
    print_message("message")
    out = capsys.readouterr()
    assert (out.out, out.err) == ("result\nline\n", "message\n")


def test_json_keeps_unicode_and_turns_other_objects_into_text(capsys) -> None:
    print_json({"path": Path("a"), "word": "Grüße"})
    out = capsys.readouterr().out
    assert json.loads(out) == {"path": "a", "word": "Grüße"} and "Grüße" in out


def test_shared_options_are_fields_of_every_spec_with_the_same_defaults() -> None:
    known = RunOptions.model_fields
    for name, value in StudyOptions().plain().items():
        assert known[name].default == value, name
    assert {field.name for field in fields(SpecOverrides)} <= set(known)
