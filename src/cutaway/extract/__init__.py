"""One forward pass over the texts: what to keep, token rows, batches, visitors, workers."""
