"""Measurements behind our choices; each module is one command, ``python -m benchmarks.<name>``."""
