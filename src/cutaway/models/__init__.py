"""A checkpoint in: anatomy, load, check, read, swap, loss, the bundled model."""
