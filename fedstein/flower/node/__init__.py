"""A Flower node: what it does with a request, its own rows, and its state on disk."""
