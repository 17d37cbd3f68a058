import json
import subprocess
import sys

import pytest

TEXT = " the film is lovely , so i love it ."
ASK = {"prompt": " so i", "words": ("love", "hate")}


def start(model: str, **options) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "cutaway.studies.live", model], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **options,
    )  # fmt: skip


@pytest.mark.slow
def test_the_process_speaks_json_lines_and_ends_with_its_pipe(place, toy) -> None:
    with start(str(place / "toy")) as process:
        process.stdin.write("no json\n[1]\n" + json.dumps({"id": 7, "text": TEXT}) + "\n")
        process.stdin.flush()
        sent = []
        while not sent or not sent[-1].get("over"):
            sent.append(json.loads(process.stdout.readline()))
        assert sent[0]["ready"]["layers"] == 3
        assert [m.get("part") for m in sent[1:]] == ["lens", "exit", None]
        process.stdin.close()
        assert process.wait(timeout=20) == 0


@pytest.mark.slow
def test_a_model_that_is_not_there_is_the_last_thing_it_says(tmp_path) -> None:
    with start(str(tmp_path / "nothing")) as process:
        assert "no folder" in json.loads(process.stdout.readline())["fatal"]
        assert process.wait(timeout=20) == 2
