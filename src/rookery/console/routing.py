"""The views of the console: which function answers which path, and which scope it needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from starlette.responses import Response

from rookery.console.visit import Visit

ViewHandler = Callable[[Visit], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class View:
    """
    A view: one method of one path below `/console`.

    Attributes:
        path: A path of Starlette, such as `/keys/{key_id}`.
        scope: The scope without which the view is refused; None: every key. The API checks each call once more.
    """

    method: Literal["GET", "POST"]
    path: str
    handler: ViewHandler
    scope: str | None = None
