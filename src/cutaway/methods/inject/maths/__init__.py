"""Fisher information, penalties and scores of answers as pure functions on tensors."""
