"""`cutaway graft export`: write a skill as plain tensors for other programs."""

from cutaway.methods.graft.checkpoint import need_empty_folder
from cutaway.methods.graft.skill import load_skill
from cutaway.methods.graft.spec import ExportSpec
from cutaway.recipe.life_cycle import Context
from cutaway.recipe.result import ActionResult
from cutaway.store import files
from cutaway.store.tensors import TensorLayout

README = """# A skill: {task}

{size} weights of {base}. For each weight tensor NAME, `skill.safetensors` holds
NAME/places (flat indices), NAME/before (the base's values) and NAME/after (the skill's).

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


def resolve(spec: ExportSpec, context: Context) -> ExportSpec:
    """The spec, once `--out` is known to be free."""
    need_empty_folder(spec.out)
    return spec


def perform(spec: ExportSpec, context: Context) -> ActionResult:
    """Write a folder with plain tensors by weight name, and a README."""
    skill, out = load_skill(spec.skill), need_empty_folder(spec.out)
    patch, tensors = skill.patch, {}
    for name, indices in patch.mask.indices.items():
        tensors[f"{name}/places"] = indices
        tensors[f"{name}/before"] = patch.before[name]
        tensors[f"{name}/after"] = patch.after[name]
    path = out / "skill.safetensors"
    layout = TensorLayout({name: [value] for name, value in tensors.items()})
    files.make_folder(out)
    files.write_atomic(path, layout.chunks())
    masked = skill.meta.get("task", {}).get("mode") == "prompt"
    readme = README.format(
        task=skill.label,
        size=f"{skill.size:,}",
        base=skill.meta["base"]["name"],
        dtype=str(next(iter(patch.after.values())).dtype).removeprefix("torch."),
        auto="AutoModelForMaskedLM" if masked else "AutoModelForCausalLM",
    )
    files.write_atomic(out / "README.md", [readme.encode()])
    size = path.stat().st_size
    sentence = f"{path}: {skill.size:,} weights in {size / 1024:,.0f} kB, with a README."
    return ActionResult((sentence,), {"out": str(out), "size": skill.size, "bytes": size})
