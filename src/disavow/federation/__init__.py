"""The application layer: every use case of a run once, for the command line, Flower, audits and notebooks.

A `Federation` is an open run. Its data and its engine are built on first use, so that whatever needs no training
(status, a forecast, a deniable erasure, proofs, the account) works without the data and without torch. For the
same reason each use case imports what only it needs: to look at a run takes neither the prover nor the verifier.

Each module is a class of use cases, derived from those that it needs; `Federation` puts them together:

    open_run ─┬─ requests ───────────────────────────┬─ erasures ────┬─ federation
              ├─ answers ── purges ──────────────────┤               │
              ├─ proofs ─────────────────────────────┘               │
              └─ requests, purges, proofs ───────────── inspection ──┘
"""

from disavow.federation.callbacks import Callbacks
from disavow.federation.erasures import Confirm
from disavow.federation.federation import Federation

__all__ = ["Callbacks", "Confirm", "Federation"]
