"""The files that pages load: htmx, with its licence, and the style sheet."""

from __future__ import annotations

from fastapi import Response

from disavow.errors import NotFound
from disavow.server.pages.rendering import HERE, router

_TYPES = {".js": "text/javascript", ".css": "text/css", ".LICENSE": "text/plain", ".svg": "image/svg+xml"}
_FILES = {path.name: path for path in (HERE / "static").iterdir() if path.suffix in _TYPES}


@router.get("/static/{name}")
def static(name: str) -> Response:
    """Give a file that pages load."""
    path = _FILES.get(name)
    if path is None:
        raise NotFound("there is no such file")
    headers = {"Cache-Control": "public, max-age=3600"}
    return Response(path.read_bytes(), headers=headers, media_type=_TYPES[path.suffix])
