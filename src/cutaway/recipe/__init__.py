"""The life cycle that all verbs share: options, address, pieces, rows, summary, result."""
