"""`cutaway graft export`: a skill for programs that know nothing of Cutaway."""

from pathlib import Path

from cutaway.console import Console
from cutaway.methods.graft.checkpoint import need_empty_folder
from cutaway.methods.graft.skill import load_skill
from cutaway.methods.graft.spec import ExportSpec
from cutaway.recipe.objects import Objects
from cutaway.recipe.result import ActionResult
from cutaway.store import files
from cutaway.store.tensors import TensorLayout

README = """# A skill: {task}

{size} weights of {base}. For each weight tensor NAME, `skill.safetensors` holds
NAME/places (flat positions), NAME/before (the base's values) and NAME/after (the skill's).

```python
from safetensors.torch import load_file
from transformers import {auto}

model = {auto}.from_pretrained({base!r}, dtype="{dtype}")
skill, weights = load_file("skill.safetensors"), dict(model.named_parameters())
for key in skill:
    if key.endswith("/places"):
        name = key.removesuffix("/places")
        weights[name].data.view(-1)[skill[key]] = skill[name + "/after"]
```
"""


def run(
    spec: ExportSpec, *, console: Console | None = None, objects: Objects | None = None
) -> ActionResult:
    """A folder with plain tensors by weight name, and how to use them."""
    skill, out = load_skill(spec.skill), need_empty_folder(spec.out)
    tensors = {}
    for name, places in skill.patch.mask.places.items():
        tensors[f"{name}/places"] = places
        tensors[f"{name}/before"] = skill.patch.before[name]
        tensors[f"{name}/after"] = skill.patch.after[name]
    path = out / "skill.safetensors"
    layout = TensorLayout({name: [value] for name, value in tensors.items()})
    files.make_folder(out)
    files.write_atomic(path, layout.chunks())
    masked = skill.meta.get("task", {}).get("mode") == "prompt"
    first = next(iter(skill.patch.after.values()))
    said = README.format(
        task=skill.label,
        size=f"{skill.size:,}",
        base=skill.meta["base"]["name"],
        dtype=str(first.dtype).removeprefix("torch."),
        auto="AutoModelForMaskedLM" if masked else "AutoModelForCausalLM",
    )
    files.write_atomic(Path(out) / "README.md", [said.encode()])
    size = path.stat().st_size
    told = f"{path}: {skill.size:,} weights in {size / 1024:,.0f} kB, with a README beside it."
    return ActionResult((told,), {"out": str(out), "size": skill.size, "bytes": size})
