"""Watch logs from outside: does a server tell everybody one history, and does that only grow?

`heads` reads the heads that clients keep, `gossip` compares them; `sources` asks a log for its head and for proofs
of consistency, `watch` does so again and again, and `webhooks` sends its alarm. The standard library and
`cryptography` are all it needs, but to read a run folder.
"""
