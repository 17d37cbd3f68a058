"""Avalanche: the importances of its EWCPlugin, batches of one so that they are per example.

It is made for images: torchvision must be there, but not work. A build of it for another torch
names operators that are not there; it may, since none of them is used.
"""

import time
from contextlib import suppress
from typing import Any

import torch
from job import job


def lenient(name: str, *args: Any, **options: Any) -> Any:
    def keep(function: Any) -> Any:
        with suppress(RuntimeError):
            REGISTER(name, *args, **options)(function)
        return function

    return keep


REGISTER, torch.library.register_fake = torch.library.register_fake, lenient

from avalanche.benchmarks.utils import as_classification_dataset  # noqa: E402
from avalanche.training.plugins import EWCPlugin  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402


class Rows(torch.utils.data.Dataset):
    """Tokens without the last, tokens without the first."""

    def __init__(self, rows: list[list[int]]) -> None:
        self.rows, self.targets = rows, list(range(len(rows)))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> tuple[torch.Tensor, torch.Tensor]:
        row = torch.tensor(self.rows[place])
        return row, row[1:]


class Words(torch.nn.Module):
    """The model as Avalanche wants one: input in, scores out."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(ids).logits[:, :-1]


def loss(said: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(said.flatten(0, 1), wanted.flatten())


def work(args: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(1)
    module = AutoModelForCausalLM.from_pretrained(args["model"], dtype=torch.float32)
    model = Words(module)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plugin = EWCPlugin(ewc_lambda=1.0)

    def importances(rows: list[list[int]]) -> Any:
        data = as_classification_dataset(Rows(rows))
        return plugin.compute_importances(
            model, loss, optimizer, data, torch.device("cpu"), 1, num_workers=0
        )

    importances(args["rows"][:1])
    start = time.process_time()
    found = importances(args["rows"])
    seconds = time.process_time() - start
    kept = {name.removeprefix("model."): value.data.clone() for name, value in found.items()}
    save_file(kept, args["out"])
    return {"seconds": seconds}


if __name__ == "__main__":
    job(work, "avalanche-lib")
