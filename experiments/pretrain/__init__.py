"""Training of the network that gives the structured flow its corrections, for every data set at once.

python -m experiments.pretrain train --chunks 6000 --first 2227     train on; writes state and shipped weights
python -m experiments.pretrain train --chunks 2227 --state new.npz  begin anew
python -m experiments.pretrain measure                              what the weights reach without training on a table

The shipped weights come from one run of 2227 chunks of 20 steps, whose rate fell by the clock (75 minutes on a shared
machine) instead of by the number of the chunk: a new run gives other weights. `state.npz` is where that run ended.
"""
