"""Results become tables, figures and one-file HTML; needs no torch."""
