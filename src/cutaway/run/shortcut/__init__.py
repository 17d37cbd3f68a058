"""Recipes of shortcut, one file per verb; `verbs` is what `cutaway.shortcut` shows."""
