"""inject: train a skill into a model and measure what the other skills lose."""
