"""Where many independent pieces run."""
