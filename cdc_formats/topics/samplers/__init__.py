"""The samplers of the built-in formats."""
