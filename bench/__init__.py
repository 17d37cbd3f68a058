"""Side-by-side measurements against what people use today: `python -m bench`.

Every module here with a function `run(quick: bool) -> dict` is a bench. It may also take `rows`,
`rounds` and `keep_envs` by name. What it gives back goes to bench/results.json, and its `title`,
`text` (sentences) and `table` (rows of what, ours, rival, ratio, bar, met) to docs/benchmarks.md.
"""
