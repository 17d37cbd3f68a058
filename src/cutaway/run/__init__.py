"""Recipes: one spec and one function per method; where data, model, method and store meet."""
