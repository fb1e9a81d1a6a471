"""Compare methods of federated unlearning on one run: the same training, the same request, the same measures."""
