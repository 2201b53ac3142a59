"""Studies that use the package: reproduction, benchmark, reference and tuning.

The package itself does not import them.
"""
