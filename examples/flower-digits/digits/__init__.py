"""Federated learning on handwritten digits, whose clients can leave."""
