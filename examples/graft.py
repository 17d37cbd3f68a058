"""Fine-tune a model, find the few weights that hold the skill, attach and detach them."""

# %% Fine-tune a model on sentiment with a prompt and label words.
import sys
from pathlib import Path
from tempfile import mkdtemp

import cutaway

base = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m"
folder = Path(mkdtemp())
asked = {"task": "sst2", "data": "gen:sentiment", "shots": 16, "test_limit": 40}
# A model with another vocabulary may need other words: python examples/graft.py MODEL WORD,WORD
if len(sys.argv) > 2:
    asked["words"] = sys.argv[2]
asked["runs"] = str(folder / "runs")
tuned = str(folder / "tuned")
print(cutaway.graft.finetune(model=base, steps=20, lr=0.02, every=10, out=tuned, **asked))

# %% Which weights hold the skill? The learned mask is compared with baseline masks of equal size.
file = str(folder / "skill.safetensors")
found = cutaway.graft.learn(
    base=base, tuned=tuned, sparsity=1e-3, steps=10, step_examples=16, slope_examples=8,
    text_limit=8, out=file, **asked,
)  # fmt: skip
print(found)
print(found.rows.filter(found.rows["metric"] == "relative_gain"))

# %% The skill is a small file. Detaching it restores the model's weights exactly.
model = cutaway.open(base)
skill = cutaway.graft.load(file)
before = {name: model.params()[name].clone() for name in skill.patch.mask.indices}
skill.attach(model)
changed = sum(int((model.params()[name] != old).sum()) for name, old in before.items())
print(f"{changed} of {skill.size} weights changed, {Path(file).stat().st_size / 1024:.0f} kB")
skill.detach(model)
print("as before:", all(bool((model.params()[n] == old).all()) for n, old in before.items()))

# %% A plain checkpoint with the skill, for transformers.
cutaway.graft.attach(skill=file, base=base, out=str(folder / "with-skill"))

# %% Which layers and heads hold it, and its overlap with another skill.
found.figure("atlas")
print(cutaway.graft.overlap([file, file], runs=asked["runs"]).summary["overlap"])
