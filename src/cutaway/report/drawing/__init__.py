"""The cutaway drawing: one picture of a model, layer by layer. Needs no torch."""
