"""Operations on subscribers."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from starlette.requests import Request
from starlette.responses import StreamingResponse

from rookery.access.models import Caller, Tenant
from rookery.kernel.errors import Conflict
from rookery.kernel.http import DocumentedResponse, ItemPage, Operation, Output
from rookery.kernel.http.operations import BYTES_PER_MIB
from rookery.kernel.http.request_body import Receive, UnsupportedMediaType, read_body
from rookery.kernel.preconditions import ExpectedETags
from rookery.kernel.schema import Page
from rookery.notifications.models import ImportLine, SubscriberView
from rookery.notifications.schemas.campaigns import SubscriberExportQuery
from rookery.notifications.schemas.import_lines import MEDIA_TYPES, SubscriberFormat, export_lines, iter_batches, list_attribute_names
from rookery.notifications.schemas.subscribers import (
    ImportReportResponse,
    NewSubscriberBody,
    SubscriberChangeBody,
    SubscriberResponse,
    SubscribersQuery,
    serialize_report,
    serialize_subscriber,
)
from rookery.notifications.subscriber_import import SubscriberImport
from rookery.notifications.subscribers import Subscribers

READ_SCOPE, WRITE_SCOPE = "notify:read", "notify:write"

MAX_IMPORT_BYTES = 10 * BYTES_PER_MIB

_FORMATS_BY_MEDIA_TYPE: dict[str, SubscriberFormat] = {
    **{media_type: name for name, media_type in MEDIA_TYPES.items()},
    "application/jsonl": "jsonl",
    "application/jsonlines": "jsonl",
}
_operation = partial(Operation, tags=("Notifications",))


@dataclass(frozen=True, slots=True)
class SubscriberApi:
    """The operations on subscribers. Each handler calls one service."""

    subscribers: Subscribers
    imports: SubscriberImport

    def operations(self) -> list[Operation]:
        """Return the operations."""
        base, one = "/notify/subscribers", "/notify/subscribers/{subscriber}"
        single = partial(_operation, present=_present, response_model=SubscriberResponse, etag=True)
        return [
            _operation(method="GET", path=base, handler=self.get_subscribers, present=_present, required_scope=READ_SCOPE,
                       response_model=Page[SubscriberResponse], operation_id="list_subscribers", summary="List subscribers, newest first"),
            single(method="POST", path=base, handler=self.post_subscriber, committed=SubscriberView, required_scope=WRITE_SCOPE,
                   status=201, idempotent=True, errors=(Conflict,), operation_id="create_subscriber", summary="Create a subscriber"),
            _operation(method="POST", path=f"{base}/import", handler=self.post_import, required_scope=WRITE_SCOPE,
                       response_model=ImportReportResponse, max_body_bytes=MAX_IMPORT_BYTES,
                       request_media_types=tuple(_FORMATS_BY_MEDIA_TYPE), errors=(UnsupportedMediaType,),
                       operation_id="import_subscribers", summary="Create and change many subscribers"),
            _operation(method="GET", path=f"{base}/export", handler=self.get_export, required_scope=WRITE_SCOPE,
                       media_types=tuple(MEDIA_TYPES.values()), response_headers=("Content-Disposition",),
                       responses={200: DocumentedResponse(description="All subscribers.", media_types=tuple(MEDIA_TYPES.values()))},
                       operation_id="export_subscribers", summary="Export all subscribers"),
            single(method="GET", path=one, handler=self.get_subscriber, required_scope=READ_SCOPE, operation_id="get_subscriber",
                   summary="Show a subscriber"),
            single(method="PATCH", path=one, handler=self.patch_subscriber, required_scope=WRITE_SCOPE, errors=(Conflict,),
                   operation_id="update_subscriber", summary="Change a subscriber"),
            _operation(method="DELETE", path=one, handler=self.delete_subscriber, required_scope=WRITE_SCOPE, status=204,
                       operation_id="delete_subscriber", summary="Delete a subscriber and its data"),
        ]  # fmt: skip

    async def get_subscribers(self, caller: Caller, query: SubscribersQuery) -> ItemPage[SubscriberView]:
        """List subscribers, newest first."""
        tenant = Tenant.from_caller(caller)
        return ItemPage(*await self.subscribers.list_page(tenant, query.to_filter(), page=query.slice))

    async def post_subscriber(self, caller: Caller, body: NewSubscriberBody) -> SubscriberView:
        """Create a subscriber. URLs are checked by the same rules as each delivery."""
        return await self.subscribers.create(Tenant.from_caller(caller), body.to_model())

    async def get_subscriber(self, caller: Caller, subscriber: str) -> SubscriberView:
        """Return the subscriber with this id or external id."""
        return await self.subscribers.get(Tenant.from_caller(caller), subscriber)

    async def patch_subscriber(
        self, caller: Caller, subscriber: str, body: SubscriberChangeBody, expected: ExpectedETags
    ) -> SubscriberView:
        """
        Change a subscriber. Fields that are left out keep their value; `channels`, `tags` and `attributes` are replaced as a whole.

        A channel that is listed again keeps its id and its status. `status` sets another one, for example to activate it again.
        """
        return await self.subscribers.update(Tenant.from_caller(caller), subscriber, body, expected=expected)

    async def delete_subscriber(self, caller: Caller, subscriber: str, expected: ExpectedETags) -> None:
        """Delete a subscriber. Its pending deliveries are skipped, and its data is removed from the log of deliveries."""
        await self.subscribers.delete(Tenant.from_caller(caller), subscriber, expected=expected)

    async def post_import(self, caller: Caller, request: Request) -> ImportReportResponse:
        """
        Create and change subscribers by their external ids, from JSON Lines or CSV of up to 10 MiB.

        Good lines are stored, and bad ones are reported with their number. A line changes the fields that it has. The command
        `rookery notify subscribers import` takes larger files.
        """
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in _FORMATS_BY_MEDIA_TYPE:
            allowed = ", ".join(_FORMATS_BY_MEDIA_TYPE)
            raise UnsupportedMediaType(f"The Content-Type of the body is {kind[:100]!r}. Send one of: {allowed}.")
        body = await read_body(cast("Receive", request.receive), limit=MAX_IMPORT_BYTES, scope=request.scope)
        batches = _parse_in_thread(iter_batches(io.BytesIO(body), _FORMATS_BY_MEDIA_TYPE[kind]))
        return serialize_report(await self.imports.run(Tenant.from_caller(caller), batches))

    async def get_export(self, caller: Caller, query: SubscriberExportQuery) -> StreamingResponse:
        """
        Export all subscribers, oldest first, in a form that can be imported.

        It contains tokens and logins of addresses, which lists hide, so it needs notify:write.
        """
        tenant = Tenant.from_caller(caller)
        names = set[str]()
        if query.format == "csv":
            async for batch in self.subscribers.iterate(tenant):
                names |= list_attribute_names(batch)
        parts = export_lines(self.subscribers.iterate(tenant), query.format, sorted(names))
        headers = {"Content-Disposition": f'attachment; filename="subscribers.{query.format}"'}
        return StreamingResponse(parts, headers=headers, media_type=MEDIA_TYPES[query.format])


async def _parse_in_thread(batches: Generator[Sequence[ImportLine]]) -> AsyncGenerator[Sequence[ImportLine]]:
    """Yield parsed batches. Parsing does not block the event loop."""
    while (batch := await asyncio.to_thread(next, batches, None)) is not None:
        yield batch


def _present(_: Caller, view: SubscriberView) -> Output:
    return Output(body=serialize_subscriber(view), version=view.version)
