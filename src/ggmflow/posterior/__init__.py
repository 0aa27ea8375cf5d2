"""Posteriors of a precision matrix."""
