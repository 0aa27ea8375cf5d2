"""Exceptions with fields, and the text that each surface makes of them."""
