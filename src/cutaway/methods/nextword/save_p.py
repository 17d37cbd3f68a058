"""The full p on disk: half-precision shards, whose size is reported first."""

from collections.abc import Iterator
from pathlib import Path

import torch

from cutaway.console import Console
from cutaway.methods.nextword.features import NextwordFeatures
from cutaway.methods.nextword.maths.readout import next_token_probs, vocab_blocks
from cutaway.methods.nextword.output_head import make_output_head
from cutaway.models.lm import LM
from cutaway.store.artefacts import description_path, save_artefact
from cutaway.store.files import check_free_space
from cutaway.store.remote import local_folder

SHARD_BYTES = 256 << 20


def p_size_bytes(lm: LM, texts: int) -> int:
    """The size of p for this many texts, in half precision."""
    return texts * int(make_output_head(lm).vocab) * 2


def report_p_size(lm: LM, texts: int, prompts: int, runs: Path | str, console: Console) -> None:
    """Report what `save_p` will write, before anything is computed; an error without disk space."""
    total = prompts * p_size_bytes(lm, texts)
    times = f", {prompts} times" if prompts > 1 else ""
    console.print(
        f"--save-p writes p of {texts:,} texts{times}: {total / 2**30:.2f} GB in half precision."
    )
    # Shards are copied into the run, so both copies exist for a moment.
    check_free_space(local_folder(runs), 2 * total)


def save_p(
    features: NextwordFeatures, folder: Path, name: str, console: Console
) -> dict[str, Path]:
    """Shards `name-00000.safetensors` of p as float16, each with its rows; inner name -> file."""
    check_free_space(folder, 2 * p_size_bytes(features.lm, len(features.f)))
    files: dict[str, Path] = {}
    each = max(1, SHARD_BYTES // (2 * features.head.vocab))
    with console.progress("writing p", len(features.f)) as advance:
        for number, start in enumerate(range(0, len(features.f), each)):
            stop = min(start + each, len(features.f))
            p = torch.cat(list(_half_precision_blocks(features, start, stop)))
            path = folder / f"{name}-{number:05d}.safetensors"
            meta = {
                "rows": [start, stop],
                "of": len(features.f),
                "prompt": features.prompted.prompt,
            }
            save_artefact(path, {"p": p}, {**meta, "model": features.lm.digest})
            files |= {f"p/{one.name}": one for one in (path, description_path(path))}
            advance(stop - start)
    return files


def _half_precision_blocks(
    features: NextwordFeatures, start: int, stop: int
) -> Iterator[torch.Tensor]:
    for rows in vocab_blocks(stop - start, features.head.vocab):
        f = features.f[start + rows.start : start + rows.stop]
        yield next_token_probs(f, features.head).half()
