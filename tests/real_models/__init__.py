"""Real models from their packages: `make test-models`. Not part of `make test`."""
