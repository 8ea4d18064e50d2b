"""The public pages of notifications, and the operations that lead to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from starlette.responses import Response

from rookery.access.models import Caller, Tenant
from rookery.kernel.errors import Conflict, ValidationFailed
from rookery.kernel.http import DocumentedResponse, Operation
from rookery.kernel.http.operations import FORM_MEDIA_TYPE
from rookery.notifications.api.pages import PublicPages
from rookery.notifications.links import SUBSCRIBE_PATH, UNSUBSCRIBE_PATH, LinkExpired, LinkInvalid, PublicLinks
from rookery.notifications.public_subscriptions import PublicSubscriptions
from rookery.notifications.schemas.public import (
    BrowserSubscriptionBody,
    SubscribedResponse,
    SubscribeLinkBody,
    SubscribeLinkResponse,
    VapidKeyResponse,
)
from rookery.notifications.subscribers import Subscribers

READ_SCOPE, WRITE_SCOPE = "notify:read", "notify:write"

_UNSUBSCRIBE_FIELDS = {"List-Unsubscribe": "`One-Click`, as mail programs send it (RFC 8058). It is not read."}
_UNSUBSCRIBED_TEXT = "You receive no more notifications at this address. You can close this page."
_operation = partial(Operation, tags=("Notifications",))
_INVALID_LINK = {404: DocumentedResponse(description="A page that says that the link is invalid.", media_types=("text/html",))}
_EXPIRED_LINK = {410: DocumentedResponse(description="A page that says that the link has expired.", media_types=("text/html",))}


@dataclass(frozen=True, slots=True)
class PublicApi:
    """
    The operations on links.

    Attributes:
        get_public_key: Returns the key with which browsers subscribe.
    """

    subscribers: Subscribers
    links: PublicLinks
    subscriptions: PublicSubscriptions
    pages: PublicPages
    get_public_key: Callable[[], Awaitable[str]]

    def operations(self) -> list[Operation]:
        """Return the operations that need a key, with paths relative to the prefix."""
        return [
            _operation(method="GET", path="/notify/vapid-public-key", handler=self.get_vapid_key, required_scope=READ_SCOPE,
                       response_model=VapidKeyResponse, operation_id="get_vapid_public_key", summary="Show the public key of Web Push"),
            _operation(method="POST", path="/notify/subscribers/{subscriber}/subscribe-link", handler=self.post_subscribe_link,
                       required_scope=WRITE_SCOPE, response_model=SubscribeLinkResponse, body_optional=True,
                       operation_id="create_subscribe_link", summary="Create a link with which a browser subscribes"),
        ]  # fmt: skip

    def root_operations(self) -> list[Operation]:
        """Return the pages at the root of the server. They need no key."""
        operation = partial(_operation, required_scope=None, public=True, rate_limited=False)
        unsubscribe = partial(operation, path=f"{UNSUBSCRIBE_PATH}/{{token}}", media_types=("text/html",), responses=_INVALID_LINK)
        subscribe = partial(operation, path=f"{SUBSCRIBE_PATH}/{{token}}")
        asset = partial(operation, method="GET", hidden=True)
        return [
            unsubscribe(method="GET", handler=self.get_unsubscribe, ignores_query=True, operation_id="get_unsubscribe_page",
                        summary="Show the button that unsubscribes"),
            unsubscribe(method="POST", handler=self.post_unsubscribe, ignores_query=True, allowed_on_full_disk=True,
                        request_media_types=(FORM_MEDIA_TYPE,), form_fields=_UNSUBSCRIBE_FIELDS,
                        operation_id="cancel_subscription", summary="Unsubscribe a channel at once"),
            subscribe(method="GET", handler=self.get_subscribe, media_types=("text/html",), ignores_query=True,
                      responses=_INVALID_LINK | _EXPIRED_LINK, operation_id="get_subscribe_page",
                      summary="Show the page on which a browser subscribes"),
            subscribe(method="POST", handler=self.post_subscribe, response_model=SubscribedResponse,
                      errors=(LinkInvalid, LinkExpired, Conflict, ValidationFailed), operation_id="add_browser",
                      summary="Subscribe a browser"),
            asset(path="/notify/page.css", handler=self.get_style, operation_id="get_notify_style", summary="Get the style of the pages"),
            asset(path="/notify/subscribe.js", handler=self.get_script, operation_id="get_notify_script",
                  summary="Get the script of the page"),
            asset(path="/notify/service-worker.js", handler=self.get_service_worker, operation_id="get_notify_service_worker",
                  summary="Get the service worker that shows notifications"),
        ]  # fmt: skip

    async def get_vapid_key(self, caller: Caller) -> VapidKeyResponse:
        """Return the public key with which pages of your own subscribe browsers. It is the same for all workspaces."""
        del caller
        return VapidKeyResponse(public_key=await self.get_public_key())

    async def post_subscribe_link(self, caller: Caller, subscriber: str, body: SubscribeLinkBody) -> SubscribeLinkResponse:
        """
        Return a link to a page on which a browser subscribes to Web Push for this subscriber.

        Anybody with the link can add a browser, so send it to the subscriber only.
        """
        tenant = Tenant.from_caller(caller)
        view = await self.subscribers.get(tenant, subscriber)
        link = await self.links.build_subscribe_link(tenant, view.subscriber.id, timedelta(hours=body.expires_in_hours))
        return SubscribeLinkResponse(url=link.url, expires_at=link.expires_at)

    async def get_unsubscribe(self, token: str) -> Response:
        """Return a page with one button. Nothing changes, because scanners of mails open links."""
        return await self._with_link(self.subscriptions.require_unsubscribe_token(token), "unsubscribe.html", "Unsubscribe")

    async def post_unsubscribe(self, token: str) -> Response:
        """Unsubscribe at once, without a further question (RFC 8058). Repeating it has no further effect."""
        return await self._with_link(self.subscriptions.unsubscribe(token), "message.html", "Unsubscribed", text=_UNSUBSCRIBED_TEXT)

    async def get_subscribe(self, token: str) -> Response:
        """Return the page on which a browser subscribes."""
        key = await self.get_public_key()
        checking = self.subscriptions.require_subscribe_token(token)
        return await self._with_link(checking, "subscribe.html", "Notifications", public_key=key)

    async def post_subscribe(self, token: str, body: BrowserSubscriptionBody) -> SubscribedResponse:
        """Add a browser to the channels of the subscriber that the link is for."""
        keys = body.keys
        await self.subscriptions.subscribe_browser(
            token,
            endpoint=body.endpoint,
            p256dh=keys.p256dh.rstrip("="),
            auth=keys.auth.rstrip("="),
            ends_at_ms=body.expirationTime,
        )
        return SubscribedResponse(subscribed=True)

    async def get_style(self) -> Response:
        """Return the style of the pages."""
        return self.pages.get_asset("page.css")

    async def get_script(self) -> Response:
        """Return the script of the page on which a browser subscribes."""
        return self.pages.get_asset("subscribe.js")

    async def get_service_worker(self) -> Response:
        """Return the service worker that shows notifications."""
        return self.pages.get_asset("service-worker.js")

    async def _with_link(self, work: Awaitable[None], page: str, title: str, **content: str) -> Response:
        """Return *page* after *work*, or the page about an invalid or expired link."""
        try:
            await work
        except LinkInvalid as error:
            title = "Link expired" if isinstance(error, LinkExpired) else "Link invalid"
            return self.pages.render("message.html", title=title, status=error.status, content={"text": error.message})
        return self.pages.render(page, title=title, content=content)
