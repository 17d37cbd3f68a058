"""One training loop: plan, steps, checkpoints, several processes, tasks as prompts."""
