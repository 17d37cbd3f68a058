"""The maths of graft, on named tensors and callables that compute a loss.

mask = MASKS["movement"](MaskInputs(base, tuned), keep, rng)   # the top |tuned - base|
learned = learn_mask(params, base, tuned, mask, losses, evaluate, plan, rng=rng)
patch = make_patch(base, tuned, learned.mask)
"""
