"""Probing as pure functions on tensors: classifiers, layer mixes, description length."""
