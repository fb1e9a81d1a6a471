"""All commands, each with an example in its help, declared in the order in which `disavow --help` lists them."""

from __future__ import annotations

from disavow.cli import for_runs

# isort: split
from disavow.cli import for_proofs

# isort: split
from disavow.cli import for_studies
from disavow.cli.base import app

__all__ = ["app", "for_proofs", "for_runs", "for_studies"]
