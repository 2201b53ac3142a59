"""Differentially private runs: settings, mechanism, accounting, ledgers, and the check of every message."""
