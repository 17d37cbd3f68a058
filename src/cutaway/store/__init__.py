"""Results, artefacts and activations on disk, written atomically."""
