"""Where a worker process begins: tied to its parent first, at work afterwards.

It is run by its path, as a program (`python leash.py <descriptor of the socket>`), so that it needs no part of
disavow, and thus no torch, before the leash is on: a parent can die while a worker is still importing.
"""

from __future__ import annotations

import os
import select
import sys
import threading


def leave_with_parent(descriptor: int, parent: int) -> None:
    """End this process when the parent is gone or has hung up, even in the middle of training.

    The socket says so at once. The parent's number is a second sign, for when a child that the parent forked
    still holds the other end.
    """
    hung_up = select.poll()
    hung_up.register(descriptor, 0)
    while not hung_up.poll(1000) and os.getppid() == parent:
        pass
    os._exit(0)


def main() -> None:
    """Serve the parent over the socket whose descriptor is the only argument."""
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    threading.Thread(target=leave_with_parent, args=(descriptor, os.getppid()), daemon=True).start()

    from disavow.engines.pool.worker import serve

    serve(descriptor)


if __name__ == "__main__":
    main()
