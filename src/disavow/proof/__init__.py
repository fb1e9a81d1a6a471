"""What an auditor installs: the standard library and `cryptography` alone.

So far it holds the commitments that bind each slot of a recorded round; the log, the proof and its
verification build on them.
"""
