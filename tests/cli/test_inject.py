"""What `cutaway inject` and `cutaway fisher` say to a wrong request: one message, status 2."""

import pytest

from cutaway.cli.main import run
from tests.methods.inject.toys import spelling_toy
from tests.tiny import toy_language


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with two models, texts, and the Fisher of the causal one."""
    root = tmp_path_factory.mktemp("place")
    spelling_toy(root / "causal", "llama")
    spelling_toy(root / "masked", "bert")
    (root / "texts.txt").write_text("\n".join(toy_language(30)))
    (root / "empty.txt").write_text("\n\n")
    (root / "zero.txt").write_text("\n".join(["4 / 2 = 2"] * 12 + ["3 / 0 = 0"]))
    (root / "wrong.txt").write_text("\n".join(["4 + 2 = 6"] * 12 + ["3 + 3 = 7"]))
    fisher = "fisher --model {0}/causal --text {0}/texts.txt --out {0}/f.safetensors --quiet"
    assert run([*fisher.format(root).split(), "--runs", str(root / "runs")]) == 0
    return root


SUMS = "gen:arithmetic?n=20,digits=1,dev=5,test=5"
BAD = {
    "another model's Fisher": ("masked", "--fisher {root}/f.safetensors", "is the Fisher of"),
    "no Fisher there": ("causal", "--fisher {root}/no.safetensors", "No Fisher at"),
    "strength below 0": ("causal", "--strength=-1", "strength must be 0 or more"),
    "such a strength of one": ("causal", "--regulariser ewc=-1", "strength must be 0 or more"),
    "division by zero": ("causal", "--data {root}/zero.txt", "divisions by zero"),
    "wrong results": ("causal", "--data {root}/wrong.txt", "3 + 3 is 6"),
    "too few masks": ("masked", "--data gen:arithmetic?n=20,digits=3-4 --masks 1", "too few"),
    "nothing to retain": ("causal", "--retain {root}/empty.txt", "empty.txt"),
    "no such regulariser": ("causal", "--regulariser ewcc", "ewc"),
    "no such digits": ("causal", "--data gen:arithmetic?digits=0", "1-9"),
    "no such operator": ("causal", "--data gen:arithmetic?ops=%", "operator"),
    "a rank below 0": ("causal", "--lora=-1", "lora must be ranks"),
    "no task": ("causal", "--retain-tasks {root}/texts.txt", "needs one of"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_wrong_request_gets_one_message_and_status_2(what, place, capsys) -> None:
    kind, flags, said = BAD[what]
    usual = {"--retain": f"{place}/texts.txt", "--data": SUMS}
    given = flags.format(root=place).split()
    for name, value in usual.items():
        given += [] if name in given else [name, value]
    words = f"inject --model {place}/{kind} --steps 1 --runs {place}/runs --quiet".split()
    assert run([*words, *given]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.startswith("cutaway: ")
    assert "Traceback" not in err


def test_an_interrupted_run_says_how_to_go_on_and_then_does(place, capsys, monkeypatch) -> None:
    import cutaway.training.loop as loop

    words = (
        f"inject --model {place}/causal --retain {place}/texts.txt --data {SUMS} --steps 4 "
        f"--every 1 --regulariser none --no-clash --no-checkpoints --runs {place}/again --quiet"
    ).split()
    real, calls = loop.training_step, []

    def stopped(*args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(loop, "training_step", stopped)
    assert run(words) == 130
    assert "repeat the command" in capsys.readouterr().err
    assert run(words) == 0
    assert len(calls) == 3 + 2
