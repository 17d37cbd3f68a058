"""Small models that can spell numbers, and short sweeps on them."""

import numpy as np
import torch

import cutaway
from cutaway.core.textset import TextSet
from cutaway.models.load import open_model
from tests import tiny

SUMS = "gen:arithmetic?n=60,ops=+-,digits=1,dev=10,test=20"
RETAIN = TextSet("toy", tuple(tiny.toy_language(60, seed=5)))
SHORT = {"steps": 4, "every": 2, "batch": 8, "retain_batch": 4, "clash": False, "lr": 1e-3}


def spelling_toy(folder, family: str):
    """A toy whose tokenizer knows digits."""
    lines = [f"{a} + {b} = {a + b}" for a in range(10) for b in range(10)]
    # Long numbers too, so that every digit can begin a word and go on with one.
    texts = tiny.toy_language(300) + lines + [str(n) for n in range(1000, 9999, 37)]
    tokenizer = tiny.tiny_tokenizer(tiny.FAMILIES[family].style, texts, size=700)
    model = tiny.tiny_model(family, tokenizer)
    tiny._train(model, tokenizer, tiny.toy_language(300), 40, np.random.default_rng(0))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def teach(toys, tmp_path, kind="causal", **options):
    given = {"model": toys[kind], "data": SUMS, "retain": [RETAIN], "runs": str(tmp_path / "runs")}
    return cutaway.inject(**{**given, **SHORT, **options})


def weights_of(result, cell: str) -> dict[str, torch.Tensor]:
    return open_model(str(result.path / "checkpoints" / cell), check=False).params()


def same(one, two) -> bool:
    return all(torch.equal(value, two[name]) for name, value in one.items())


class Rows(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        ids = torch.tensor([1, 5 + i, 9, 7])
        return {"input_ids": ids, "labels": ids}
