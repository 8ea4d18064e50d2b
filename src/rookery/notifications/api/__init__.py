"""The operations of notifications: /notify under /api/agent and under /v1, and the tools of the MCP server `notify`."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.kernel.clock import Clock
from rookery.kernel.http import Operation
from rookery.kernel.http.operation_tools import OperationServer, drop_empty_fields
from rookery.notifications import tool_declarations
from rookery.notifications.api.campaigns import CampaignApi
from rookery.notifications.api.deliveries import NotificationLogApi
from rookery.notifications.api.pages import PublicPages
from rookery.notifications.api.public import PublicApi
from rookery.notifications.api.subscribers import SubscriberApi
from rookery.notifications.wiring import NotificationServices


@dataclass(frozen=True, slots=True)
class NotificationApi:
    """The operations of subscribers, campaigns and deliveries."""

    services: NotificationServices
    clock: Clock
    organization: str

    def server(self) -> OperationServer:
        """Return the built-in MCP server `notify`."""
        return OperationServer(
            CampaignApi(self.services.campaigns, self.clock).operations(),
            tool_declarations.SERVER,
            compact=drop_empty_fields,
        )

    def operations(self) -> list[Operation]:
        """Return all operations, with paths relative to the prefix."""
        services = self.services
        return [
            *SubscriberApi(services.subscribers, services.subscriber_import).operations(),
            *CampaignApi(services.campaigns, self.clock).operations(),
            *NotificationLogApi(services.log, services.secrets).operations(),
            *self._public_api().operations(),
        ]

    def root_operations(self) -> list[Operation]:
        """Return the public pages at the root of the server."""
        return self._public_api().root_operations()

    def _public_api(self) -> PublicApi:
        services = self.services
        pages = PublicPages(self.organization)
        return PublicApi(services.subscribers, services.links, services.public_subscriptions, pages, services.get_vapid_public_key)
