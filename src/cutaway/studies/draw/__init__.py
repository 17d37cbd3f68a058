"""The cutaway drawing of a model: runs what is missing, reuses what is there, draws one picture."""
