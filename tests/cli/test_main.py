import json
import os
import resource
import signal
import subprocess
import sys

import pytest

from cutaway.cli.main import app, run
from cutaway.cli.verbs import VERBS
from cutaway.core.errors import RunError


def refused(capsys, *words: str) -> str:
    assert run(words) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert out.err.startswith("cutaway: ")
    assert "Traceback" not in out.err
    return out.err


NO_AMOUNT = ("-1", "nan", "inf", "-0.001")


@pytest.mark.parametrize(
    "words, hint",
    [
        (["prob"], 'Did you mean "probe"?'),
        (["probe", "--modl", "m"], "Did you mean '--model'?"),
        (["probe", "--model", "m", "--data", "d", "--pol", "last"], "--pool"),
        (["probe", "--model", "m"], "data is required"),
        (["probe", "--model", "m", "--data", "d", "--protocol", "kfol"], "'kfold'"),
        (["probe", "--model", "m", "--data", "d", "--repeats", "0"], "greater than or equal to 1"),
        (["probe", "--model", "m", "--data", "d", "--repeats", "many"], "valid integer"),
        (["probe", "--model", "m", "--data", "d", "--baselines", "bw"], "bow"),
        (["probe", "--modle", "m", "--data", "d"], "Unknown option '--modle'"),
        (["report", "--out", "x.html", "--html"], "--html"),
        (["cache", "lss"], 'Did you mean "ls"?'),
        *((["cache", "prune", "--max-gb", many], "--max-gb must be") for many in NO_AMOUNT),
        *((["cache", "prune", "--older-than-days", n], "older_than_days must") for n in NO_AMOUNT),
        (["probe", "--model", "m", "--data", "d", "--seed", str(2**63)], "less than or equal to"),
        (["probe", "--model", "m", "--data", "d", "--engine", "ray://h:99999"], "0-65535"),
        (["probe", "--model", "m", "--data", "d", "--train-sizes", "many"], "got 'many'"),
        (["check", "~nosuch/model"], "There is no folder '~nosuch/model'"),
        (["ls", "--runs", "s3://[x"], "The URL s3://... is invalid"),
        (["data", "get", "gen:tense", "--seed", "-1", "--out", "o"], "seed must be 0 or more"),
        (["data", "get", "docs", "--seed", "-1", "--out", "o"], "seed must be 0 or more, got -1"),
        (["data", "sentences", "--seed", "-1", "--out", "o.txt"], "seed must be 0 or more"),
    ],
)
def test_a_wrong_request_gets_one_clear_message_and_status_2(words, hint, capsys):
    assert hint in refused(capsys, *words)


@pytest.mark.parametrize("words", [["--help"], ["probe", "--help"], ["--version"]])
def test_help_and_version_end_well(words):
    assert run(words) == 0


def test_the_spec_is_printed_as_json_and_nothing_runs(capsys):
    assert run(["probe", "--model", "a", "b", "--data", "x,y", "--print-spec"]) == 0
    spec = json.loads(capsys.readouterr().out)
    assert spec["model"] == ["a", "b"]
    assert spec["data"] == ["x", "y"]


def test_lists_may_be_repeated_in_a_row_or_with_commas(capsys):
    run(["probe", "--model", "a", "--model", "b,c", "--data", "x", "--print-spec"])
    assert json.loads(capsys.readouterr().out)["model"] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "error, status", [(RunError("it broke"), 1), (KeyboardInterrupt(), 130)], ids=["run", "ctrl-c"]
)
def test_a_failed_and_an_interrupted_run_have_their_own_status(error, status, capsys, monkeypatch):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr("cutaway.cli.verbs.run_verb", fail)
    assert run(["probe", "--model", "m", "--data", "d"]) == status
    assert capsys.readouterr().err.startswith("cutaway: ")


def test_a_spec_file_with_an_unknown_key_is_refused(tmp_path, capsys):
    file = tmp_path / "a.toml"
    file.write_text('verb = "probe"\nmodel = "m"\ndata = "d"\npoll = "last"\n')
    assert "Did you mean 'pool'?" in refused(capsys, "run", str(file))


def test_a_spec_file_without_a_verb_or_with_bad_toml_is_refused(tmp_path, capsys):
    file = tmp_path / "a.toml"
    file.write_text('model = "m"\n')
    assert 'verb = "probe"' in refused(capsys, "run", str(file))
    file.write_text("model = ")
    assert "TOML" in refused(capsys, "run", str(file))
    assert "No spec file" in refused(capsys, "run", str(tmp_path / "none.toml"))


def test_a_list_in_a_field_of_one_value_makes_a_grid(tmp_path, capsys):
    file = tmp_path / "a.toml"
    file.write_text('verb = "probe"\nmodel = ["m", "n"]\ndata = "d"\nseed = [1, 2, 3]\n')
    assert run(["run", str(file), "--print-spec"]) == 0
    text = capsys.readouterr().out
    assert text.count('"seed"') == 3
    assert text.count('"n"') == 3


GRID = 'verb = "probe"\nmodel = ["m", "n"]\ndata = "d"\nseed = [1, 2]\n'


def test_an_empty_list_in_a_grid_is_refused(tmp_path, capsys):
    file = tmp_path / "a.toml"
    file.write_text(GRID.replace("[1, 2]", "[]"))
    assert "seed is an empty list" in refused(capsys, "run", str(file))


def test_a_grid_is_one_json_document_and_a_single_spec_stays_one(tmp_path, capsys):
    file = tmp_path / "a.toml"
    file.write_text(GRID)
    assert run(["run", str(file), "--print-spec"]) == 0
    assert [spec["seed"] for spec in json.loads(capsys.readouterr().out)] == [1, 2]
    file.write_text(GRID.replace("[1, 2]", "[1]"))
    assert run(["run", str(file), "--print-spec"]) == 0
    assert json.loads(capsys.readouterr().out)["seed"] == 1


def test_what_a_grid_finished_before_a_failure_is_told(tmp_path, capsys, monkeypatch):
    def carry_out(verb, spec, talk, tell):
        if spec.seed == 2:
            raise RunError("it broke")
        tell({"seed": spec.seed})

    monkeypatch.setattr("cutaway.cli.verbs.run_verb", carry_out)
    file = tmp_path / "a.toml"
    file.write_text(GRID)
    assert run(["run", str(file), "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == [{"seed": 1}]


def piped(words: str, into: str) -> tuple[int, str]:
    """The status and stderr of a command whose stdout goes into something."""
    line = f"{sys.executable} -m cutaway {words} {into}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], check=False, capture_output=True, text=True)
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", ["--help", "cache ls --json"])
def test_a_reader_that_is_gone_ends_a_command_quietly(words, tmp_path, monkeypatch):
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path))
    assert piped(words, "| true") == (0, "")


@pytest.mark.parametrize("words", ["--help", "cache ls --json"])
def test_a_full_disk_behind_stdout_is_one_message_and_status_1(words, tmp_path, monkeypatch):
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path))
    status, said = piped(words, "> /dev/full")
    assert status == 1
    assert said.startswith("cutaway: The output can't be written: ") and said.count("\n") == 1


def test_a_name_with_stray_bytes_can_be_shown():
    words = r"['probe', '--model', 'caf\udce9', '--data', 'd', '--print-spec']"
    code = f"from cutaway.cli.main import main; main({words})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout)["model"] == ["caf\udce9"]


def test_help_lists_every_verb_and_builds_no_spec():
    code = "import sys; from cutaway.cli.main import app, run; run(['--help'])"
    told = f"{code}; sys.exit('pydantic' in sys.modules or 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", told], check=True, capture_output=True, text=True)
    listed = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("│ ")}
    assert {words.split()[0] for words in VERBS} <= listed


@pytest.mark.parametrize("words", VERBS)
def test_every_verb_has_a_command_whose_help_names_its_fields(words, capsys):
    assert run([*words.split(), "--help"]) == 0
    said = capsys.readouterr().out
    assert VERBS[words].help.split()[0] in said
    assert "--seed" in said


def test_help_is_quick():
    def seconds() -> float:
        """Processor time: the wall clock also measures who else is using the machine."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "cutaway", "--help"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(3)) < 0.6


EVERYWHERE = (
    "engine",
    "device",
    "dtype",
    "seed",
    "offline",
    "dry-run",
    "print-spec",
    "json",
    "quiet",
)


@pytest.mark.parametrize("command", ["tour", "reproduce", "run"])
def test_every_command_that_opens_a_model_takes_the_options_of_every_recipe(command) -> None:
    arguments = app[command].assemble_argument_collection()
    flags = {name for argument in arguments for name in argument.names}
    assert {f"--{name}" for name in EVERYWHERE} <= flags


def test_a_study_shows_its_specs_with_the_options_that_were_given(capsys) -> None:
    words = ["--seed", "7", "--offline", "--print-spec", "--runs", "elsewhere"]
    assert run(["reproduce", "shortcut", *words]) == 0
    specs = json.loads(capsys.readouterr().out)
    shared = {(spec["seed"], spec["offline"], spec["runs"]) for spec in specs}
    assert shared == {(7, True, "elsewhere")}


def test_data_is_written_under_its_own_name_unless_told_otherwise(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["data", "get", "gen:tense?n=20"]) == 0
    assert run(["data", "sentences", "--n", "5"]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["sentences.txt", "tense-n-20"]
    assert len((tmp_path / "sentences.txt").read_text().splitlines()) == 5
    assert sorted(p.name for p in (tmp_path / "tense-n-20").iterdir()) == [
        "dev.jsonl", "test.jsonl", "train.jsonl"
    ]  # fmt: skip


def test_what_is_given_beside_a_spec_file_holds_in_its_place(tmp_path, capsys) -> None:
    file = tmp_path / "spec.toml"
    file.write_text('verb = "probe"\nmodel = "m"\ndata = "d"\nseed = 3\noffline = true\n')
    assert run(["run", str(file), "--print-spec"]) == 0
    plain = json.loads(capsys.readouterr().out)
    words = ["--runs", "elsewhere", "--seed", "7", "--no-offline", "--dtype", "bfloat16"]
    assert run(["run", str(file), *words, "--print-spec"]) == 0
    given = {"runs": "elsewhere", "seed": 7, "offline": False, "dtype": "bfloat16"}
    assert json.loads(capsys.readouterr().out) == {**plain, **given}
    assert (plain["seed"], plain["offline"]) == (3, True)


def ended_by(number: int) -> tuple[int, str]:
    """Start a command that waits, send the signal, and return its status and messages."""
    code = (
        "import time; from cutaway.cli import verbs; from cutaway.cli.main import main\n"
        "def wait(*a, **k): print('ready', flush=True); time.sleep(60)\n"
        "verbs.run_verb = wait\n"
        "main(['probe', '--model', 'm', '--data', 'd'])\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    child.send_signal(number)
    messages = child.communicate(timeout=60)[1]
    return child.returncode, messages


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_every_ending_signal_is_one_message_and_its_own_status(name) -> None:
    number = getattr(signal, name)
    status, messages = ended_by(number)
    assert status == 128 + number
    assert messages.startswith(f"cutaway: interrupted by {name}.")
    assert "repeat the command to go on" in messages and len(messages.splitlines()) == 1


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 4 bytes"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    ],
    ids=["python", "torch", "loader"],
)
def test_too_little_memory_is_one_message(error, monkeypatch, capsys) -> None:
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr("cutaway.cli.verbs.run_verb", fail)
    assert run(["probe", "--model", "m", "--data", "d"]) == 1
    assert "needs more memory than it could get" in capsys.readouterr().err


def test_a_limited_address_space_is_one_message() -> None:
    command = f"ulimit -v 400000; exec {sys.executable} -m cutaway check nosuch-model"
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=env)
    assert done.returncode == 1 and "limited to 391 MB" in done.stderr
    assert len(done.stderr.splitlines()) == 1
