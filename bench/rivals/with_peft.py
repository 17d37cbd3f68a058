"""peft: a low-rank adapter read from its folder, merged into the base, saved as a checkpoint."""

import time
from pathlib import Path
from typing import Any

import torch
from job import job
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM


def work(args: dict[str, Any]) -> dict[str, Any]:
    folder = Path(args["out"] + "-adapter")
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(args["base"], dtype=torch.float32)
    options = LoraConfig(r=args["rank"], target_modules=args["modules"], init_lora_weights=False)
    get_peft_model(base, options).save_pretrained(folder)
    # From here on what a user of the adapter does: open, merge, save.
    start = time.perf_counter()
    base = AutoModelForCausalLM.from_pretrained(args["base"], dtype=torch.float32)
    PeftModel.from_pretrained(base, folder).merge_and_unload().save_pretrained(args["out"])
    seconds = time.perf_counter() - start
    size = (folder / "adapter_model.safetensors").stat().st_size
    return {"seconds": seconds, "bytes": size}


if __name__ == "__main__":
    job(work, "peft")
