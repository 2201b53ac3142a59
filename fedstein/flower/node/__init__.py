"""A Flower node: how it answers requests, its own rows, and its state on disk."""
