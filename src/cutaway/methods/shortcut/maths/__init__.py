"""Jump over layers with one matrix: fit it, look through it, exit early, draft with it.

    moments    rows of many layers -> cross-products, in one streaming pass
    fit        cross-products -> Shortcut values, one factorisation per source layer
    fidelity   how much of a layer's variance a shortcut explains (r2)
    lens       what the model would say from a layer, and how far that is from what it says
    tune       a shortcut trained on the final distribution instead of the final state
    exit       stop as soon as the answer is sure, simulated for every threshold at once
    schedule   which blocks to run and which to jump
    speculate  which drafted tokens may stay

Rows are examples, so a map is applied as `hidden @ matrix`; the paper's A is the transpose.
"""
