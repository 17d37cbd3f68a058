"""What the app's Live page asks: one sentence, seen from every side, in a process of its own."""
