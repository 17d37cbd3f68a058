"""Linear maps between layers: how to fit, judge and use them.

    moments    states of many layers -> cross-products, in one streaming pass
    fit        cross-products -> maps, one factorisation per source layer
    fidelity   r2: how much of a layer's variance a map explains
    lens       the prediction of a layer, compared with the full model's
    tune       a map trained on the final distribution instead of the final state (tuned lens)
    exit       early exit, simulated for every threshold at once, and its calibration
    schedule   which blocks to run and which to skip
    speculate  which drafted tokens to accept

Rows are examples, so a map is applied as `hidden @ matrix`; the paper's A is the transpose.
"""
