"""The computations of the app's Live page for one sentence, in a separate process."""
