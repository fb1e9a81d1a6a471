"""Who is alike: distances between updates, and partitions into clusters of at least k and fewer than 2k."""
