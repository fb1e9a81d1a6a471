"""`python -m disavow` is `disavow`."""

from disavow.cli import main

main()
