"""The server of a run over Flower: requests, membership, transport, and the round loop's engine."""
