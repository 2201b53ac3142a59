"""What a run protects: the keys of ``[privacy]``."""
