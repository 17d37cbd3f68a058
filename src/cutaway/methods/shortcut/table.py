"""Tables of shortcut runs: nothing beyond the summary of their cells."""
