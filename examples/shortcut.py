"""Linear maps between layers: fit them, evaluate them, exit early, generate with drafts."""

# %% Fit the maps from every layer to the last on the bundled text.
import sys
from pathlib import Path
from tempfile import mkdtemp

import torch

import cutaway

model = cutaway.open(sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m")
folder = Path(mkdtemp())
shared = {"model": model, "text": "docs", "limit": 60, "max_tokens": 64, "positions_per_text": 8}
shared["runs"] = str(folder / "runs")
file = str(folder / "maps.safetensors")
fitted = cutaway.shortcut.fit(**shared, layers="to-final", out=file)
print(fitted)

# %% What does each layer predict? `id` is the logit lens.
measured = cutaway.shortcut.eval(**shared, shortcut=file)
print(measured)
print(measured.rows.filter(measured.rows["metric"] == "precision@1"))

# %% How many layers does an early exit save?
print(cutaway.shortcut.exit(**shared, shortcut=file))

# %% The same text as plain generation, with drafts from early layers if they make it faster.
written = cutaway.shortcut.generate(
    model=model, shortcut=file, prompt="The function returns", max_new_tokens=12
)
print(written.texts[0].text, *written.verdict, sep="\n")

# %% Use one map.
middle = model.layers // 2
jump = cutaway.shortcut.load(file, model).jump(middle, model.layers)
hidden = torch.randn(3, model.width)
print(jump(hidden).shape)

# %% The layer x token grid of a sentence as a web page.
cutaway.shortcut.lens(
    "The capital of France is", model=model, shortcut=file, html=str(folder / "lens.html")
)
print(folder / "lens.html")
