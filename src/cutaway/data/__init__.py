"""Load text sets: known tasks, files, folders, hub datasets and generated text."""
