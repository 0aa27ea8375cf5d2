"""Training of the network that gives the structured flow its corrections, for every data set at once.

python -m experiments.pretrain train --minutes 60      continue training, or begin it
python -m experiments.pretrain measure                 what the weights reach, by size and family
"""
