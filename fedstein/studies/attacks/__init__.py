"""Attacks on what clients send, with and without protection: membership inference and gradient inversion."""
