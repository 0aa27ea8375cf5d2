"""Training of a flow."""
