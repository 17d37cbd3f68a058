"""The whole p on disk, for who wants the matrix: half-precision shards, their size told first."""

from collections.abc import Iterator
from pathlib import Path

import torch

from cutaway.methods.nextword.readout import blocks_of, distribution
from cutaway.models.lm import LM
from cutaway.run.nextword_head import output_of
from cutaway.run.nextword_sheet import Sheet
from cutaway.run.screen import Screen
from cutaway.store.artefacts import description_of, save_artefact
from cutaway.store.files import need_room
from cutaway.store.remote import local

SHARD_BYTES = 256 << 20


def size_of_p(lm: LM, texts: int) -> int:
    """The bytes of p of so many texts in half precision."""
    return texts * int(output_of(lm).vocab) * 2


def tell_size(lm: LM, texts: int, prompts: int, runs: Path | str, screen: Screen) -> None:
    """Say what `save_p` will write, before anything is computed; an error without the room."""
    total = prompts * size_of_p(lm, texts)
    times = f", {prompts} times" if prompts > 1 else ""
    screen.say(
        f"--save-p writes p of {texts:,} texts{times}: {total / 2**30:.2f} GB in half precision."
    )
    # Written aside, then copied into the run: both are there for a moment.
    need_room(local(runs), 2 * total)


def save_p(page: Sheet, folder: Path, name: str, screen: Screen) -> dict[str, Path]:
    """Shards `name-00000.safetensors` of p as float16, each with its rows; inner name -> file."""
    need_room(folder, 2 * size_of_p(page.lm, len(page.f)))
    made: dict[str, Path] = {}
    each = max(1, SHARD_BYTES // (2 * page.output.vocab))
    with screen.progress("writing p", len(page.f)) as advance:
        for number, start in enumerate(range(0, len(page.f), each)):
            stop = min(start + each, len(page.f))
            p = torch.cat(list(_halves(page, start, stop)))
            path = folder / f"{name}-{number:05d}.safetensors"
            meta = {"rows": [start, stop], "of": len(page.f), "prompt": page.read.prompt}
            save_artefact(path, {"p": p}, {**meta, "model": page.lm.digest})
            made |= {f"p/{one.name}": one for one in (path, description_of(path))}
            advance(stop - start)
    return made


def _halves(page: Sheet, start: int, stop: int) -> Iterator[torch.Tensor]:
    for rows in blocks_of(stop - start, page.output.vocab):
        f = page.f[start + rows.start : start + rows.stop]
        yield distribution(f, page.output).half()
