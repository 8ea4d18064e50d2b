"""The HTTP shell that every route stands in: one table row a route, one body for errors, one page envelope (D-09..D-16)."""

from rookery.kernel.http.bodies import read_json
from rookery.kernel.http.describing import Described, describe, hide, tag
from rookery.kernel.http.event_stream import EventStream, event, wants_events
from rookery.kernel.http.idempotency import Once, record_made, respond_with
from rookery.kernel.http.pages import page
from rookery.kernel.http.replies import error_reply, reply
from rookery.kernel.http.routes import Admission, Admit, Route, allowed_on_full_disk, mount
from rookery.kernel.http.shell import Shell

__all__ = [
    "Admission",
    "Admit",
    "Described",
    "EventStream",
    "Once",
    "Route",
    "Shell",
    "allowed_on_full_disk",
    "describe",
    "error_reply",
    "event",
    "hide",
    "mount",
    "page",
    "read_json",
    "record_made",
    "reply",
    "respond_with",
    "tag",
    "wants_events",
]
