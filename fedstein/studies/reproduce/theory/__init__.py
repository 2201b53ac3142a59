"""Section III in numbers: the indicators of every candidate, and the true change of the free energies by one step."""
