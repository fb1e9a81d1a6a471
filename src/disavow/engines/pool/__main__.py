"""The program of a worker process: watch the parent first, then import torch and serve.

It is run by its path (`python __main__.py <descriptor of the socket>`) and not with `-m`, so that nothing of
disavow, and thus no torch, is imported before the parent is watched: a parent can die while a worker still imports.
"""

from __future__ import annotations

import os
import select
import sys
import threading


def exit_with_parent(descriptor: int, parent: int) -> None:
    """End this process when the parent has died or closed the socket, even in the middle of training.

    The socket tells at once. The parent's process id is checked too, because a child that the parent forked may
    hold the other end of the socket.

    Args:
        descriptor: The socket to the parent.
        parent: Process id of the parent.

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
    threading.Thread(target=exit_with_parent, args=(descriptor, os.getppid()), daemon=True).start()

    from disavow.engines.pool.worker import serve

    serve(descriptor)


if __name__ == "__main__":
    main()
