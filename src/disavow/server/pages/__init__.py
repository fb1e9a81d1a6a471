"""HTML pages. Each shows a view of `disavow.server.views`, and has that as JSON at the same address with `.json`.

A page is a function that gives a view, and a template beside it::

    @page("/runs/{run}", "run.html")
    def run(request: Request, run: str) -> View:
        ...

Who may open it is said in `disavow.server.access.RULES`, for the page and for its JSON. Everything works without
JavaScript; `static/htmx.min.js` only saves reloading. No template may hold a script or a style of its own: the
Content-Security-Policy forbids both.
"""

from __future__ import annotations

from disavow.server.pages import login, openings, overview, purge, requests, run, static, tokens, verify
from disavow.server.pages.rendering import router

__all__ = ["login", "openings", "overview", "purge", "requests", "router", "run", "static", "tokens", "verify"]
