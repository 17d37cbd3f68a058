"""tuned-lens: its translators trained by its own recipe (KL, SGD with Nesterov momentum) on rows
of tokens, some layers only, so many steps of a few rows.
"""

import time
from typing import Any

import torch
from job import job
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM
from tuned_lens.nn.lenses import TunedLens


def work(args: dict[str, Any]) -> dict[str, Any]:
    model = AutoModelForCausalLM.from_pretrained(args["model"], dtype=torch.float32).eval()
    model.requires_grad_(False)
    lens, layers, rows = TunedLens.from_model(model), args["layers"], args["rows"]
    wanted = [p for layer in layers for p in lens.layer_translators[layer].parameters()]
    # As its train_loop has it: a learning rate of 1, divided by what momentum adds up to.
    optimizer = torch.optim.SGD(wanted, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3)
    start, seen = time.perf_counter(), 0
    for step in range(args["steps"]):
        batch = rows[step * args["batch"] : (step + 1) * args["batch"]]
        for row in batch:
            seen += len(row)
            learn(model, lens, layers, torch.tensor([row]), len(batch))
        torch.nn.utils.clip_grad_norm_(wanted, 1.0)
        optimizer.step()
        optimizer.zero_grad()
    seconds = time.perf_counter() - start
    kept = {
        f"{layer}.{name}": value.detach().contiguous()
        for layer in layers
        for name, value in lens.layer_translators[layer].named_parameters()
    }
    save_file(kept, args["out"])
    return {"seconds": seconds, "tokens": seen}


def learn(model: Any, lens: Any, layers: list[int], ids: torch.Tensor, rows: int) -> None:
    with torch.no_grad():
        said = model(ids, output_hidden_states=True)
        wanted = said.logits.log_softmax(-1)
    for layer in layers:
        guess = lens(said.hidden_states[layer], idx=layer).log_softmax(-1)
        loss = (wanted.exp() * (wanted - guess)).sum(-1).mean()
        (loss / rows).backward()


if __name__ == "__main__":
    job(work, "tuned-lens")
