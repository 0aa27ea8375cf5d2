"""Training of the network that gives the structured flow its corrections, for every data set at once.

python -m experiments.pretrain train --chunks 6000     begin training, or continue it; writes the shipped weights
python -m experiments.pretrain measure                 what the weights reach without training on a table
"""
