"""The estimator `GraphicalFlow`: one fit, or many."""
