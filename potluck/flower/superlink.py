"""Flower's SuperLink, with its control plane closed to other machines.

A SuperLink serves sites, its own programs and whoever controls it on one port. With node
authentication it knows sites by their keys, but anybody who reaches the port could register a key
or submit a run. Here, what is not for sites is served to the coordinator's own machine only.
"""

import ipaddress
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from flwr.superlink import main as superlink
from flwr.superlink.cli.flower_superlink import flower_superlink

OPEN = "/v1/fleet/"
"""The paths for sites."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class OnlySites:
    """Middleware that serves other machines what is for sites, and refuses the rest.

    Args:
      app: what is behind it.
    """

    def __init__(self, app: Application) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] in ("http", "websocket") and not allowed(scope):
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b"not from here"})
            return
        await self.app(scope, receive, send)


def allowed(scope: Scope) -> bool:
    """Whether a request may pass: it is for sites, or comes from this machine."""
    if scope["path"].startswith(OPEN):
        return True
    client = scope.get("client")
    return client is not None and ipaddress.ip_address(client[0]).is_loopback


def run() -> None:
    """Run the SuperLink; its arguments are those of `flower-superlink`."""
    create = superlink.create_app

    def create_closed(*arguments: Any, **options: Any) -> Any:
        app = create(*arguments, **options)
        app.add_middleware(OnlySites)
        # Programs ask several times a second: a line for each request would fill the disk.
        logging.getLogger("uvicorn.access").addFilter(lambda _: False)
        return app

    superlink.create_app = create_closed
    flower_superlink()


if __name__ == "__main__":
    run()
