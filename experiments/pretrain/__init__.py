"""Training of the network that gives the structured flow its corrections, for every data set at once.

python -m experiments.pretrain train --chunks 6000 --first 4243     train on; writes state and shipped weights
python -m experiments.pretrain train --chunks 4000 --state new.npz  begin anew
python -m experiments.pretrain measure                              what the weights reach without training on a table

The shipped weights grew in stages: 2227 chunks of 20 steps with four rounds and without forces and estimates of ℓ, 810
more with six rounds, 1206 as it is now; each stage began with the weights of the one before, new ones zero
or 0.5. A new run gives other weights. `state.npz` is where the last stage ended.
"""
