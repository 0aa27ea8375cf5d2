"""The density of a precision matrix, and the conditions (λ, q, T) that index it."""
