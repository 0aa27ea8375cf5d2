"""Posterior modes with exact zeros."""
