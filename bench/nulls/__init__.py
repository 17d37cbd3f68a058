"""The null suite: runs in which a claim is false by construction, and how often it is made.

    make null                                        # every world, 200 runs each
    python -m bench.nulls --only probe --runs 20     # some of them

A world (`worlds.py` with real runs of the verbs, `simulated_*.py` with simulated test rows) gives
the sentences of one verdict per seed, and says which claims are false there. `tally.py` counts them
by kind of sentence.
"""
