"""The Proof of Deniability: what it is made of, and its verification.

What an auditor installs: this package needs the standard library and `cryptography` alone. From the bottom up:
`merkle`, `canonical`, `reading` and `commitment` are the grammar; `notes`, `envelope` and `keys` sign; `leaves` and
`history` are the log; `clusters`, `bounds`, `statement`, `opening` and `receipt` are what a proof shows; `verify`
checks it. docs/proof-format.md specifies all of it.
"""
