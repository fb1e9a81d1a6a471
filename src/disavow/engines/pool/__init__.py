"""The pool: clients train in single-threaded worker processes, one a core, that share the data.

Networks as small as these leave cores idle when several threads share one step, and stacking clients is slower
on a CPU than training them one by one; a client per core and thread is what is left, and it has the bits of the
reference engine, because it is the reference engine that each worker runs.

A worker is a program of its own (`subprocess`, see `leash`), not a fork and not a `multiprocessing` child:

* a fork would inherit the ledger's connection and lock, and torch's threads in an undefined state;
* `multiprocessing`'s other ways run the user's script again in each child, which a script without
  `if __name__ == "__main__"` turns into a chain of runs. Here, the script is never run again. The price: a network
  whose code is in the script itself cannot be sent; it is trained in this process, with a warning.

It leads a process group of its own, so that Ctrl-C reaches this process alone, which then ends the workers. When
this process dies, the socket to each worker closes, and the worker ends. Samples and updates lie in anonymous
memory (`memfd`; elsewhere an unlinked file), which the kernel frees with the last process: nothing stays behind.

Starting workers costs about as much as a second of training. They are started once so much has been trained in
this process, and until they are ready this process goes on training. On Windows, where descriptors cannot be
sent, all is trained in this process.
"""

from disavow.engines.pool.trainer import PoolTrainer

__all__ = ["PoolTrainer"]
