"""Turn views into pages: one decorator, one template environment, one way to show a refusal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from disavow import wording
from disavow.server.access import NOBODY, TABLE
from disavow.server.pages import charts

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
templates.filters |= {
    "moment": wording.moment,
    "day": wording.day,
    "days": wording.days,
    "duration": wording.duration,
    "number": wording.number,
    "size": wording.size,
}
templates.globals |= {"line_chart": charts.line_chart, "words": wording}


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
            request = next(each for each in kwargs.values() if isinstance(each, Request))
            return render(request, template, view(*args, **kwargs))

        @wraps(view)
        def as_json(*args: _P.args, **kwargs: _P.kwargs) -> JSONResponse:
            return JSONResponse(view(*args, **kwargs))

        for made in (as_html, as_json):  # FastAPI would take the view's own type for that of the answer
            made.__annotations__ = {**view.__annotations__, "return": None}
        # the JSON first: the parameter at the end of a path would take `.json` for a part of its value
        router.add_api_route(json_path(path), as_json, methods=["GET"], response_model=None)
        router.add_api_route(path, as_html, methods=["GET"], response_class=HTMLResponse, response_model=None)
        return view

    return serve


def json_path(path: str) -> str:
    """Give the address of a page's JSON."""
    return "/index.json" if path == "/" else f"{path}.json"


def render(request: Request, template: str, view: Mapping[str, Any], *, status: int = 200) -> HTMLResponse:
    """Render a view.

    Templates also get `identity`, who is looking; `path`, where they are; `may`, which says whether they may open
    the page of a route; and `query`, which gives the present address with other parameters.

    Args:
        request: The HTTP request.
        template: The file in `templates`.
        view: What is shown. Where it has a `version`, a page that shows another one loads itself anew.
        status: Of the answer.

    """
    identity = getattr(request.state, "identity", NOBODY)

    def may(path: str, method: str = "GET") -> bool:
        rule = TABLE[method, path]
        return rule.roles is None or bool(rule.roles & identity.roles)

    def query(**changed: Any) -> str:
        kept = {**request.query_params, **changed}
        return str(request.url.replace_query_params(**{k: v for k, v in kept.items() if v is not None}).query)

    text = templates.get_template(template).render(
        view=view,
        identity=identity,
        path=request.url.path,
        may=may,
        query=query,
        json_path=json_path(request.url.path) if request.method == "GET" else None,
    )
    response = HTMLResponse(text, status)
    seen = request.query_params.get("seen")
    if seen is not None and "hx-request" in request.headers and seen != view.get("version", seen):
        response.headers["HX-Refresh"] = "true"  # what may be done has changed, not only how far it is
    return response


def see_other(path: str) -> RedirectResponse:
    """Send a browser on after a form."""
    return RedirectResponse(path, _SEE_OTHER)


def show_refusal(request: Request, refusal: JSONResponse, view: Mapping[str, Any]) -> Response:
    """Show a refusal: to a browser as a page, or by sending it to log in; to programs as it is.

    Args:
        request: The HTTP request.
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
