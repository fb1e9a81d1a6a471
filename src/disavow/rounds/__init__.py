"""A round: broadcast, local training, cluster, choose and perturb, aggregate, record.

Nothing is imported here: whoever draws a random number need not load the ledger.
"""
