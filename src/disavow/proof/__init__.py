"""The Proof of Deniability: what it is made of, and its verification.

What an auditor installs: this package needs the standard library and `cryptography` alone. To read it: `verify`
runs the numbered list in `checks`; `history` replays the log; `leaves`, `statement`, `opening` and `receipt` are
the records that a proof is made of, and `record` says how records are read and written. Below them are `merkle`,
`canonical`, `validation` and `commitment`; `notes`, `envelope` and `keys` sign. docs/proof-format.md specifies all
of it.
"""
