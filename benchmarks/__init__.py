"""Benchmarks: `make bench`, or `python -m benchmarks NAME...`. Never part of the tests."""
