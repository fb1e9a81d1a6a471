"""Turn views into pages: one decorator, one template environment, one way to show a refusal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from disavow.server.access import NOBODY

_P = ParamSpec("_P")
_SEE_OTHER, _UNAUTHORIZED = 303, 401

HERE = Path(__file__).parent
router = APIRouter(include_in_schema=False)
templates = Environment(
    loader=FileSystemLoader(HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def page(path: str, template: str) -> Callable[[Callable[_P, dict[str, Any]]], Callable[_P, dict[str, Any]]]:
    """Serve what a function gives as a page, and at the same address with `.json` as JSON.

    The function takes a `request` and whatever FastAPI finds for it; it gives a view.

    Args:
        path: The address; "/" has its JSON at /index.json.
        template: The file in `templates`.

    """

    def serve(view: Callable[_P, dict[str, Any]]) -> Callable[_P, dict[str, Any]]:
        @wraps(view)
        def as_html(*args: _P.args, **kwargs: _P.kwargs) -> HTMLResponse:
            request = kwargs["request"]
            assert isinstance(request, Request)  # noqa: S101 - a page takes it
            return render(request, template, view(*args, **kwargs))

        @wraps(view)
        def as_json(*args: _P.args, **kwargs: _P.kwargs) -> JSONResponse:
            return JSONResponse(view(*args, **kwargs))

        for made in (as_html, as_json):  # FastAPI would take the view's own type for that of the answer
            made.__annotations__ = {**view.__annotations__, "return": None}
        router.add_api_route(path, as_html, methods=["GET"], response_class=HTMLResponse, response_model=None)
        router.add_api_route(json_path(path), as_json, methods=["GET"], response_model=None)
        return view

    return serve


def json_path(path: str) -> str:
    """Give the address of a page's JSON."""
    return "/index.json" if path == "/" else f"{path}.json"


def render(request: Request, template: str, view: Mapping[str, Any], *, status: int = 200) -> HTMLResponse:
    """Render a view.

    Templates also get `identity`, who is looking, and `path`, where they are.

    Args:
        request: What was asked.
        template: The file in `templates`.
        view: What is shown.
        status: Of the answer.

    """
    identity = getattr(request.state, "identity", NOBODY)
    text = templates.get_template(template).render(view=view, identity=identity, path=request.url.path)
    return HTMLResponse(text, status)


def show_refusal(request: Request, refusal: JSONResponse, view: Mapping[str, Any]) -> Response:
    """Show a refusal: to a browser as a page, or by sending it to log in; to programs as it is.

    Args:
        request: What was asked.
        refusal: The answer for programs.
        view: What it says.

    """
    path = request.url.path
    programs = path.startswith(("/v1/", "/opendsr/")) or path.endswith(".json")
    if programs or "text/html" not in request.headers.get("accept", ""):
        return refusal
    if refusal.status_code == _UNAUTHORIZED and request.method == "GET" and not path.startswith("/login"):
        return RedirectResponse("/login", _SEE_OTHER)
    return render(request, "error.html", view, status=refusal.status_code)
