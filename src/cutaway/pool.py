"""Many token vectors in, one out."""
