"""The cost of privacy: accuracy against epsilon, and the coverage of intervals."""
