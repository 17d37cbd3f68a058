"""Recipes of shortcut, one file per verb; `shortcut_verbs` is what `cutaway.shortcut` shows."""
