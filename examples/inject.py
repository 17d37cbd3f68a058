"""Train a model on arithmetic with and without EWC, and measure what it forgets."""

# %% A model, and a folder for the results.
import sys
from pathlib import Path
from tempfile import mkdtemp

import cutaway

model = cutaway.open(sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m")
folder = Path(mkdtemp())
runs = str(folder / "runs")

# %% The Fisher information of each weight on the bundled text, in a file.
file = str(folder / "docs.safetensors")
fisher = cutaway.fisher(model=model, text="docs", limit=12, max_tokens=32, out=file, runs=runs)
print(fisher)
print(fisher.rows.select("probe", "value"))

# %% Train on one-digit sums, unregularised and with EWC. Real runs need more steps.
taught = cutaway.inject(
    model=model,
    data="gen:arithmetic?n=40,dev=6,test=8,ops=+-,digits=1",
    regulariser=["none", "ewc"],
    strength=[1.0],
    fisher=file,
    retain="docs",
    retain_limit=20,
    max_tokens=24,
    steps=4,
    every=2,
    batch=8,
    clash=False,
    checkpoints=False,
    runs=runs,
)
print(taught)

# %% The trade-off, point by point; the figure has one line per regulariser.
for point in taught.summary["pareto"]:
    print(point["regulariser"], point["strength"], point["exact_match"], point["forgetting"])
taught.figure("pareto").write_html(folder / "pareto.html")
print(folder / "pareto.html")
