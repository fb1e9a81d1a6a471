"""A witness: cosigns the heads of logs that only grow, and so notices a history that was rewritten.

`heads` keeps what was cosigned, durably; `answers` decides; `serving` speaks HTTP. It needs the standard library
and `cryptography` alone, so that a third party can run it without anything that trains or opens a ledger.
"""
