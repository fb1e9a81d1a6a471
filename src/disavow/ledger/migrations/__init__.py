"""The ledger's formats, one file for each change, shipped with the package."""
