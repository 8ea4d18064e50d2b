"""The HTTP layer of every route: a table of routes, one format of errors, one format of pages."""

from rookery.kernel.http.edge import EdgeMiddleware
from rookery.kernel.http.event_stream import EventStream, accepts_events, encode_event
from rookery.kernel.http.idempotency import IdempotencyHandler, respond_with, store_created_id
from rookery.kernel.http.operations import DocumentedResponse, ItemPage, Operation, Output, ToolDeclaration
from rookery.kernel.http.request_body import parse_json
from rookery.kernel.http.responses import error_response, json_response, page_response
from rookery.kernel.http.routes import AdmissionResult, RequestGuard, mount_routes

__all__ = [
    "AdmissionResult",
    "DocumentedResponse",
    "EdgeMiddleware",
    "EventStream",
    "IdempotencyHandler",
    "ItemPage",
    "Operation",
    "Output",
    "RequestGuard",
    "ToolDeclaration",
    "accepts_events",
    "encode_event",
    "error_response",
    "json_response",
    "mount_routes",
    "page_response",
    "parse_json",
    "respond_with",
    "store_created_id",
]
