"""Ten thousand broken inputs for everything that reads what users bring."""
