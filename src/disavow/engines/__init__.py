"""Engines train the clients of a round. One protocol, one contract suite: see `federation.local_training`."""
