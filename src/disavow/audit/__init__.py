"""Attacks on our own models: what they still remember of a client, before and after it is erased."""
