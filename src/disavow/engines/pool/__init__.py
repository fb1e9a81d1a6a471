"""The pool: clients train in single-threaded worker processes, one per core, that share the samples.

Networks as small as these leave cores idle when several threads share one step, and stacking clients is slower on
a CPU than training them one by one. One client per core and thread remains. Each worker runs the reference engine,
so updates have the reference's bits.

A worker is a program of its own (`__main__`), started by `subprocess`; `docs/engines.md` says why no library for
process pools is used. It is not a fork, which would inherit the ledger's connection and lock, and torch's threads
in an undefined state. It does not run the user's script again, so a script needs no `if __name__ == "__main__"`. A
network whose class is defined in the script itself cannot be sent; it trains in this process, with a warning.

A worker leads a process group of its own, so Ctrl-C reaches this process alone, which then ends the workers. When
this process dies, the socket to each worker closes and the worker exits. Samples and updates lie in anonymous
memory (`memfd`; elsewhere an unlinked file), which the kernel frees with the last process: nothing stays behind.

Starting workers costs about as much as one second of training. They are started after that much training in this
process, which goes on training until they are ready. On Windows, where descriptors cannot be sent, everything
trains in this process.
"""

from disavow.engines.pool.trainer import START_SECONDS, PoolTrainer
from disavow.engines.pool.worker import why_unsendable

__all__ = ["START_SECONDS", "PoolTrainer", "why_unsendable"]
