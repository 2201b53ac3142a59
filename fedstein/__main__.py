"""``python -m fedstein`` is the command line."""

from fedstein.cli import main

main()
