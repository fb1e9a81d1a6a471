"""The operator's service: requests are filed, forecast, approved, answered and proved over HTTP.

    app         the application: routes, protection, background threads
    access      who may do what: one table of routes and roles
    api         REST under /v1
    opendsr     OpenDSR under /opendsr/v2
    pages       HTML pages; each has its JSON at the same address with `.json`
    views       what pages and REST show, as values that JSON can hold
    open_runs   the runs that are served
    filing      requests of many callers, placed together
    state       the service's own database: tokens, sessions, webhooks, OpenDSR requests, progress
    deliveries  webhooks and callbacks, sent and retried
    worker      answers requests and trains; a process of its own

Nothing here decides about an erasure: that is `disavow.federation`. Nothing here stores the id of a client.
"""
