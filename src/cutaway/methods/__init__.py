"""One folder per method: its spec, recipes, rows, verdict, figures, page and pure maths."""
