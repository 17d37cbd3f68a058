"""A small probe run from Python: python examples/probe.py [MODEL] [RUNS]."""

import sys

import cutaway

model = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m"
runs = sys.argv[2] if len(sys.argv) > 2 else "runs"

# %% One forward pass gives the activations for every layer, pooler and classifier of the grid.
result = cutaway.probe(
    model=model,
    data="gen:sentiment",
    limit=400,
    layers="all",
    pool=["last", "mean"],
    classifier=["logistic", "centroid"],
    protocol="fixed",
    runs=runs,
)

# %% Findings first, then every number.
for sentence in result.summary["verdict"]:
    print(sentence)
print(result.rows.filter(result.rows["metric"] == "accuracy").head())

# %% A figure that opens in a browser, offline.
result.figure("layers").write_html(result.path / "layers.html")
print(f"figure: {result.path / 'layers.html'}")
