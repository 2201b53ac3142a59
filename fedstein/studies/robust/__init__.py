"""Lying clients: accuracy against the share of liars, with and without ``[robust]``."""
