"""The marginal likelihood of (λ, q)."""
