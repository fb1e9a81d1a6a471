"""Methods of federated unlearning, one file each, written from their papers."""
