"""Targets, sites and methods: how a posterior is inferred from what clients compute."""
