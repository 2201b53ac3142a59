"""Section III as numbers: the indicators of every candidate beside the true one-step change of the free energies."""
