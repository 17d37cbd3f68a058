"""Classification as sentence completion: python examples/nextword.py [MODEL] [RUNS]."""

import sys

import cutaway

model = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m"
runs = sys.argv[2] if len(sys.argv) > 2 else "runs"

# %% Features made of the next-word distribution alone, with and without a prompt after each text.
result = cutaway.nextword(
    model=model,
    data="gen:sentiment",
    limit=240,
    prompt_text=" All in all, it was",
    class_words=["terrible", "great"],
    subset_words=["great", "good", "terrible", "bad", "boring", "happy", "sad"],
    features="f,phi_p,subset,zeroshot,p",
    runs=runs,
)

# %% Findings first, then every number.
for sentence in result.summary["verdict"]:
    print(sentence)
print(result.rows.filter(result.rows["metric"] == "accuracy"))

# %% The scores by feature: a figure that opens in a browser, offline.
result.figure("features").write_html(result.path / "features.html")
print(f"figure: {result.path / 'features.html'}")
