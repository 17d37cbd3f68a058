"""Teach a skill and keep the others: Fishers, penalties, honest scores. Tensors in, tensors out."""
