"""finetune: teach a model a task and keep the best checkpoint."""
