"""Studies that use the package: reproduction, benchmark, comparison, leaderboard, reference and tuning.

The package itself does not import them.
"""
