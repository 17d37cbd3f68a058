"""What is kept: results, artefacts, activations; whole or not at all."""
