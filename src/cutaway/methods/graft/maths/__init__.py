"""graft: which few weights hold a fine-tuned skill?

    mask = movement(base, tuned, keep)           # the top |tuned - base|, exactly `keep` places
    learned = learn(params, base, tuned, mask, losses, judge, plan, rng=rng)
    patch = patch_of(base, tuned, learned.mask)  # places, values before, values after

A model enters as live parameters by name and callables that compute a loss from them.
"""
