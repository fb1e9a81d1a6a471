"""Ways to train a federation before anybody leaves, one file each."""
