"""Recipes of inject: `cutaway fisher` and `cutaway inject`.

examples   texts become rows of tokens with the places where the model is asked
fisher     per-example squared gradients, added up and kept with their identity
"""
