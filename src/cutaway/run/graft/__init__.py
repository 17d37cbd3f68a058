"""Recipes of graft, one file per verb; `graft_verbs` is what `cutaway.graft` shows."""
