"""Everything that reads what users bring: right inputs to begin with, and the way in."""

import atexit
import hashlib
import io
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import torch

from cutaway.catalog import VERBS
from cutaway.cli.verbs import spec_grid
from cutaway.core.errors import BadSpec
from cutaway.core.lookup import lookup
from cutaway.core.spec import build_spec, parse_toml
from cutaway.data import generator_options
from cutaway.data.generate import generate
from cutaway.data.hub import parse_hub_id
from cutaway.data.load import load_text_set as load
from cutaway.data.tasks import find_task
from cutaway.data.templates import check_template
from cutaway.data.templates import fill_template as fill_template
from cutaway.methods.graft.skill import load_skill
from cutaway.methods.nextword.spec import NextwordSpec
from cutaway.methods.probe.maths.layer_mix import parse_layers
from cutaway.models.checkpoint import need_config, need_weights
from cutaway.models.gguf_header import read_gguf_header
from cutaway.pool import pooler
from cutaway.store import files, tensors
from cutaway.store.activations import open_activations
from cutaway.store.query import open_database, query_database
from cutaway.store.query_tables import fill_database
from cutaway.store.records import ROWS_FILE as ROWS_FILE
from cutaway.store.results import results
from cutaway.studies.findings import find_study
from cutaway.studies.reference_logs import read_experiments
from tests.models.gguf_samples import small_gguf
from tests.store.samples import keep

ENOUGH = 10_000


@dataclass(frozen=True)
class Loader:
    """How a broken input is put before its reader."""

    seeds: tuple[bytes, ...]
    read: Callable[[bytes, Path], Any]
    cases: int = ENOUGH


def from_file(name: str, read: Callable[[Path], Any]) -> Callable[[bytes, Path], Any]:
    """The input as a file of this name."""

    def put(data: bytes, folder: Path) -> Any:
        path = folder / name
        path.write_bytes(data)
        return read(path)

    return put


def as_text(read: Callable[[str], Any]) -> Callable[[bytes, Path], Any]:
    """The input as a word of the command line: text, with what is no UTF-8 smuggled in."""
    return lambda data, _: read(data.decode("utf-8", errors="surrogateescape"))


def read_spec(path: Path) -> Any:
    """The specs of a file as `cutaway run` makes them."""
    values = parse_toml(path.read_text(encoding="utf-8", errors="replace"))
    verb = lookup(VERBS, str(values.pop("verb", "")), kind="verb")
    return list(spec_grid(verb.spec_class, values))


def read_tensors(path: Path) -> Any:
    """Every tensor of a file, through the map."""
    return [tensors.map_tensor(path, name) for name in tensors.tensor_names(path)]


def read_described(data: bytes, folder: Path) -> Any:
    """A skill whose description is broken but bears a right seal, as another's program might."""
    path = folder / "skill.safetensors"
    if not path.exists():
        path.write_bytes(SKILL)
    try:
        meta = json.loads(data)
    except (ValueError, RecursionError):
        meta = {"method": "graft", "tensors": data.decode("latin1")}
    seal = {"sha256": files.sha256_file(path), "bytes": len(SKILL)}
    files.write_sealed(path.with_suffix(".json"), {"meta": meta, **seal})
    return load_skill(path)


def read_run(data: bytes, folder: Path) -> Any:
    """A folder of runs with a broken one: it is listed among the broken, or whole."""
    place = folder / "probe" / "0123456789abcdef"
    place.mkdir(parents=True, exist_ok=True)
    (place / "result.json").write_bytes(data)
    found = results(folder)
    return [record.summary for record in found], found.broken


def read_generated(text: str) -> Any:
    """A generated set; the largest that are allowed take their time and tell nothing new."""
    with patch.object(generator_options, "MAX_GENERATED_ROWS", 500):
        return generate(text)


def read_rows(data: bytes, folder: Path) -> Any:
    """The table of a run with whatever is in it under a right checksum, as another might send."""
    if not (folder / "probe").exists():
        keep(folder)
    (record,) = results(folder)
    (record.path / ROWS_FILE).write_bytes(data)
    seal = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    return replace(record, files={**record.files, ROWS_FILE: seal}).rows


@cache
def _asked() -> Any:
    """A confined database over one run: opening one for each case would take most of the time."""
    with tempfile.TemporaryDirectory() as folder:
        keep(Path(folder))
        connection = open_database()
        fill_database(connection, Path(folder))
    atexit.register(_asked.cache_clear)
    return connection


def read_prompt(text: str) -> Any:
    """A prompt, its words and a template, as the command line takes them."""
    first, _, second = text.partition("|")
    asked = {"model": "m", "data": "d", "prompt_text": first, "class_words": second}
    spec = build_spec(NextwordSpec, {**asked, "template": second, "position": "mask"})
    try:
        check_template(second, pair=False, mask=True)
    except ValueError as error:
        # What a task file or a command would say.
        raise BadSpec(str(error)) from None
    return spec, fill_template(second, first, mask="[MASK]")


def read_index(data: bytes, folder: Path) -> Any:
    """The weights that an index names, in a folder with one shard."""
    (folder / "model-1.safetensors").write_bytes(SAFETENSORS)
    (folder / "model.safetensors.index.json").write_bytes(data)
    return need_weights(folder)


def read_config(data: bytes, folder: Path) -> Any:
    """A checkpoint's config."""
    (folder / "config.json").write_bytes(data)
    return need_config(folder)


def read_shard(data: bytes, folder: Path, *, values: bool) -> Any:
    """A column of a table of which one file is broken: its values, or their description."""
    root = folder / "tables"
    table = open_activations({"for": "fuzz"}, 3, root)
    if not root.exists() or not list(root.rglob("shard-*.json")):
        with table.writer() as writer:
            writer.append(range(3), {"x": COLUMN})
    name = "shard-*.safetensors" if values else "shard-*.json"
    (path,) = root.rglob(name)
    whole = path.read_bytes()
    try:
        path.write_bytes(data)
        seen = open_activations({"for": "fuzz"}, 3, root)
        found = seen.read("x", range(3))
        assert torch.equal(found, COLUMN), "a broken shard gave other numbers"
        return found
    finally:
        path.write_bytes(whole)


def _shard_bytes(name: str) -> bytes:
    """The bytes of a right shard."""
    with tempfile.TemporaryDirectory() as folder:
        with open_activations({"for": "fuzz"}, 3, Path(folder)).writer() as writer:
            writer.append(range(3), {"x": COLUMN})
        (path,) = Path(folder).rglob(name)
        return path.read_bytes()


def _gguf() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return small_gguf(Path(folder))


def _safetensors() -> bytes:
    columns = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([1, 2])}
    layout = tensors.TensorLayout({name: [value] for name, value in columns.items()})
    return b"".join(bytes(chunk) for chunk in layout.chunks())


def _skill() -> bytes:
    parts = {
        "places": torch.tensor([0, 2, 1], dtype=torch.int32),
        "before": torch.zeros(3),
        "after": torch.ones(3),
    }
    layout = tensors.TensorLayout({name: [value] for name, value in parts.items()})
    return b"".join(bytes(chunk) for chunk in layout.chunks())


def _parquet() -> bytes:
    held = io.BytesIO()
    pl.DataFrame({"text": ["a b", "c", "d e f", "g"], "label": [0, 1, 0, 1]}).write_parquet(held)
    return held.getvalue()


COLUMN = torch.arange(6.0).reshape(3, 2)
SAFETENSORS = _safetensors()
SKILL = _skill()
TSV = (
    b"text\tlabel\tsplit\nThe film is good.\t1\ttrain\nThe film is bad.\t0\ttest\nSo so.\t1\tdev\n"
)
ROWS = [{"text": "The film is good.", "label": 1}, {"text": "A bad one.", "label": 0}]
TABLE = [{"name": "w", "shape": [2, 2], "places": 2}, {"name": "v", "shape": [3], "places": 1}]
DESCRIBED = {"method": "graft", "tensors": TABLE, "base": {"name": "m", "checksum": "0" * 64}}
LOG = {
    "experiment_0": {
        "metadata": {"name": "Toy", "size": 50},
        "expdata": {"model": "gpt2", "classifier": "LDA", "layer": 6, "quantile": 1.0,
                    "layer_method": None},
        "data": {"Accuracy": [0.6, 0.7], "F1": [0.5, 0.6], "train loss": [0]},
    }
}  # fmt: skip
RUN = {
    "method": "probe", "address": "0123456789abcdef", "spec": {"model": "gpt2"},
    "summary": {"best": 0.9}, "baselines": {}, "model": {"name": "gpt2"}, "data": {"name": "sst2"},
    "seed": 0, "versions": {}, "seconds": 1.5, "peak_memory_mb": 2.0, "command": "cutaway probe",
}  # fmt: skip
TASK = b"""name = "mine"
description = "Is a film review positive?"
kind = "binary"
classes = ["bad", "good"]
prompt = " All in all, it was"
class_words = ["bad", "good"]
template = "{text} It was {mask}."
label_words = ["bad", "good"]
[columns]
text = "sentence"
label = "label"
"""
SPEC = b"""verb = "probe"
model = "smollm2-135m"
data = "gen:sentiment"
layers = "0,6-8"
pool = ["last", "mean"]
classifier = ["logistic"]
repeats = 3
seed = 1
"""
STUDY = b"""name = "mine"
title = "Does layer 12 know the tense?"
paper = "our lab"
[defaults]
model = "smollm2-135m"
[[steps]]
name = "grid"
verb = "probe"
fields = { model = "<model>", data = "gen:tense", layers = ["0", "12"] }
[[findings]]
says = "Layer 12 knows more"
more = { step = "grid", where = { layers = "12" } }
less = { step = "grid", where = { layers = "0" } }
by = 0.05
"""
CONFIG = b'{"model_type": "gpt2", "n_layer": 2, "rope": {"a": [1, 2.5]}}'
JSON_ROWS = json.dumps(ROWS).encode()
JSON_COLUMNS = json.dumps({key: [row[key] for row in ROWS] for key in ROWS[0]}).encode()
JSON_LINES = b"\n".join(json.dumps(row).encode() for row in ROWS)
QUOTED = b'text,label\n"a, ""b""",x\n"two\nlines",y\n'
SUMS = b"gen:arithmetic?n=6,ops=+-,digits=1-2"
SQL = (
    b"select layers, avg(value) from rows group by layers",
    b"select summary->>'$.best' from runs where method = 'probe'",
    b"with x as (from rows) select * from x order by value limit 3",
)
LOADERS: dict[str, Loader] = {
    "tsv": Loader((TSV, b"label\tsentence\n1\tgood film\n0\tbad film\n"), from_file("d.tsv", load)),
    "csv": Loader((TSV.replace(b"\t", b","), QUOTED), from_file("d.csv", load)),
    "txt": Loader((b"One line.\nAnother.\n", b"\xef\xbb\xbfx\r\ny\r\n"), from_file("d.txt", load)),
    "json": Loader((JSON_ROWS, JSON_COLUMNS), from_file("d.json", load)),
    "jsonl": Loader((JSON_LINES,), from_file("d.jsonl", load)),
    "parquet": Loader((_parquet(),), from_file("d.parquet", load)),
    "arithmetic": Loader((b"12 + 30 = 42\n7 * 8 = 56\n9 / 3 = 3\n",), from_file("d.txt", load)),
    "task": Loader((TASK,), from_file("mine.toml", find_task)),
    "spec": Loader((SPEC,), from_file("spec.toml", read_spec)),
    "log": Loader((json.dumps(LOG).encode(),), from_file("log.json", read_experiments)),
    "tensors": Loader((SAFETENSORS,), from_file("t.safetensors", read_tensors)),
    "skill": Loader((json.dumps(DESCRIBED).encode(),), read_described),
    "run": Loader((files.sealed_bytes(RUN), json.dumps(RUN).encode()), read_run),
    "rows": Loader((_parquet(),), read_rows),
    "generated": Loader((b"gen:sentiment?n=8", SUMS, b"gen:tense?n=4"), as_text(read_generated)),
    "hub id": Loader((b"hf:glue/sst2:train", b"hf:imdb"), as_text(parse_hub_id)),
    "layers": Loader((b"all", b"0,6-8,12", b"mean:1-3;4"), as_text(lambda t: parse_layers(t, 12))),
    "pool": Loader((b"last", b"q0.5", b"attn:3", b"mean"), as_text(pooler)),
    "prompt": Loader((b" It was|{text} It was {mask}.", b"|{mask}: {text}"), as_text(read_prompt)),
    "study": Loader((STUDY,), from_file("mine.toml", lambda path: find_study(str(path)))),
    "config": Loader((CONFIG,), read_config),
    "gguf": Loader((_gguf(),), from_file("m.gguf", read_gguf_header)),
    "index": Loader((b'{"weight_map": {"a": "model-1.safetensors"}}',), read_index),
    "shard": Loader((_shard_bytes("shard-*.safetensors"),), partial(read_shard, values=True)),
    "sidecar": Loader((_shard_bytes("shard-*.json"),), partial(read_shard, values=False)),
    "sql": Loader(SQL, as_text(lambda sql: query_database(_asked(), sql, seconds=1))),
}  # fmt: skip
