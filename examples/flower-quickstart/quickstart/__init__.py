"""Federated averaging on handwritten digits."""
