"""Every real model opens, passes its checks, agrees with plain transformers, and runs each method.

    make test-models

The runs are as small as they can be: they show that a method works on the model, not how well.
"""

import json
import random
import time
from pathlib import Path

import pytest
import torch

import cutaway
from cutaway.core.errors import CutawayError
from cutaway.models.check import check
from tests.real_models.conftest import OpenedModel

pytestmark = [
    pytest.mark.real_models,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("default"),
]
PARITY = 1e-5
SHORT = {"steps": 2, "every": 1, "batch": 4}


def texts_of(real: OpenedModel, count: int) -> list[tuple[str, int]]:
    """Random texts of the model's own words; the label is the class of one of the words."""
    rng = random.Random(0)
    neutral, *classes = real.model.words
    rows = []
    for number in range(count):
        words = rng.choices(neutral, k=rng.randint(4, 9))
        words.insert(rng.randint(0, len(words)), rng.choice(classes[number % 2]))
        rows.append((" ".join(words), number % 2))
    return rows


def test_it_opens_and_passes_every_check(real: OpenedModel) -> None:
    lm, report = real.lm, check(real.lm)
    assert [one for one in report.checks if one.verdict == "wrong"] == []
    assert report.passed
    unknown = lm.tokenizer.unk_token_id
    words = " ".join(real.model.vocabulary)
    assert unknown is None or unknown not in lm.tokenizer(words)["input_ids"]
    noisy = sum(one.verdict != "fine" for one in report.checks)
    real.seen |= {
        "model": real.model.name,
        "family": f"{lm.family}, {lm.kind}{'' if lm.has_head else ', no head'}",
        "size": f"{lm.parameters / 1e6:.0f} M, {lm.layers} layers",
        "checks": f"{len(report.checks) - noisy} fine" + (f", {noisy} noisy" if noisy else ""),
        "methods": "", "parity": "",
        "seen": "; ".join(
            [*(a.split(". ")[0].rpartition("/")[2] for a in real.advice),
             *lm.notes, *(w.name for w in report.warnings)]
        ),
    }  # fmt: skip


def test_every_layer_is_that_of_plain_transformers(real: OpenedModel) -> None:
    """The last one after the final norm, as transformers gives it."""
    from transformers import AutoModel

    folder, gguf = real.path, {}
    if folder.suffix == ".gguf":
        folder, gguf = folder.parent, {"gguf_file": folder.name}
    plain = AutoModel.from_pretrained(folder, dtype=torch.float32, **gguf).eval()
    states = real.lm.read([text for text, _ in texts_of(real, 6)], pool=None)
    worst = 0.0
    for number, row in enumerate(states.ids):
        with torch.no_grad():
            wanted = plain(torch.tensor([row]), output_hidden_states=True).hidden_states
            assert len(wanted) == real.lm.layers + 1
            for layer, expected in enumerate(wanted):
                got = states[layer][number]
                got = real.lm.final_norm(got) if layer == real.lm.layers else got
                worst = max(worst, float((got - expected[0]).norm() / expected[0].norm()))
    real.seen["parity"] = f"{worst:.0e}"
    assert worst < PARITY


def runs_of(real: OpenedModel, at: Path) -> dict:
    """A small run of each method, as it fits: without a head, no logits."""
    lm, path = real.lm, str(real.path)
    rows, (_, bad, good) = texts_of(real, 60), real.model.words
    data, text, maps = at / "rows.tsv", at / "texts.txt", str(at / "maps.safetensors")
    data.write_text("label\ttext\n" + "".join(f"{label}\t{text}\n" for text, label in rows))
    text.write_text("".join(f"{text}\n" for text, _ in texts_of(real, 60)))
    sums = at / "answers.jsonl"
    sums.write_text(
        "".join(json.dumps({"prompt": t, "answer": (bad, good)[n][0]}) + "\n" for t, n in rows)
    )
    keep = {"runs": str(at / "runs"), "quiet": True}
    template = "{text} {mask}" if lm.kind == "masked" else "{text} It was"
    task = {"task": "sst2", "data": str(data), "shots": 4, "test_limit": 8,
            "mode": None if lm.has_head else "head"}  # fmt: skip
    if lm.has_head:
        task |= {"template": template, "words": [bad[0], good[0]]}
    read = {"model": path, "text": str(text), "limit": 60, **keep}
    tuned, last = str(at / "tuned"), [f"{lm.anatomy.blocks}.{len(lm.blocks) - 1}.*"]
    found = {
        "probe": lambda: cutaway.probe(
            model=path, data=str(data), layers=f"0,{lm.layers}", repeats=1, **keep
        ),
        "shortcut": lambda: cutaway.shortcut.fit(**read, layers="to-final", rank=4, out=maps),
        "finetune": lambda: cutaway.graft.finetune(
            model=path, **task, **SHORT, params=last, lr=1e-3, out=tuned, **keep
        ),
        "graft": lambda: cutaway.graft.learn(
            base=path, tuned=tuned, **task, sparsity=1e-3, steps=2, step_examples=4,
            slope_examples=4, judge_examples=4, baselines="movement", text="none", **keep,
        ),
    }  # fmt: skip
    if lm.has_head:
        found |= {
            "nextword": lambda: cutaway.nextword(
                model=path, data=str(data), prompt_text=" ", class_words=[bad[0], good[0]],
                features="f,phi_p,classwords", repeats=1, **keep,
            ),
            "inject": lambda: cutaway.inject(
                model=path, skill=str(sums), retain=[str(text)], retain_limit=10, strength=[1.0],
                fisher_examples=4, weights="last", max_tokens=16, checkpoints=False, **SHORT,
                **keep,
            ),
        }  # fmt: skip
    return found


def test_every_method_that_fits_runs(real: OpenedModel, tmp_path) -> None:
    failed = {}
    done = []
    for name, start in runs_of(real, tmp_path).items():
        begin = time.monotonic()
        try:
            assert start().rows.height > 0
            print(f"{name}: {time.monotonic() - begin:.0f} s")
            done.append(name)
        except CutawayError as error:
            failed[name] = str(error)
    real.seen["methods"] = ", ".join(done)
    assert failed == {}


def test_without_a_head_logits_are_refused(real: OpenedModel) -> None:
    if real.lm.has_head:
        pytest.skip("it has a head")
    with pytest.raises(CutawayError, match="head"):
        cutaway.nextword(model=str(real.path), data="gen:sentiment?n=20", class_words=["a", "b"])


def test_the_bundled_file_by_path_gives_the_rows_of_the_bundled_name(real, tmp_path) -> None:
    if "SmolLM2" not in real.model.name:
        pytest.skip("not the bundled model")
    tables = [
        cutaway.probe(
            model=name, data="gen:tense?n=60", layers="0,15,30", repeats=1, quiet=True,
            runs=str(tmp_path / folder),
        ).rows.drop("model")
        for name, folder in (("smollm2-135m", "name"), (str(real.path), "path"))
    ]  # fmt: skip
    assert tables[0].equals(tables[1])
