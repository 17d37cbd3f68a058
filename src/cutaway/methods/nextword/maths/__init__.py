"""nextword: classification as sentence completion, from f(s) and the output embedding alone."""
