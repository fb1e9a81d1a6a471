"""One module for each format of the ledger, in the order of their names."""
