"""
All groups of operations.

Written by `make client` from the declarations of the operations. Change those, not this file.
"""

# fmt: off

from __future__ import annotations

from rookery_client.operations.analytics import AsyncAnalyticsOperations, AnalyticsOperations
from rookery_client.operations.audit import AsyncAuditOperations, AuditOperations
from rookery_client.operations.content import AsyncContentOperations, ContentOperations
from rookery_client.operations.keys import AsyncKeysOperations, KeysOperations
from rookery_client.operations.memory import AsyncMemoryOperations, MemoryOperations
from rookery_client.operations.notifications import AsyncNotificationsOperations, NotificationsOperations
from rookery_client.operations.operation import AsyncOperationOperations, OperationOperations
from rookery_client.operations.plans import AsyncPlansOperations, PlansOperations
from rookery_client.operations.scoring import AsyncScoringOperations, ScoringOperations
from rookery_client.operations.servers import AsyncServersOperations, ServersOperations
from rookery_client.operations.sessions import AsyncSessionsOperations, SessionsOperations
from rookery_client.operations.templates import AsyncTemplatesOperations, TemplatesOperations
from rookery_client.operations.tools import AsyncToolsOperations, ToolsOperations
from rookery_client.operations.usage import AsyncUsageOperations, UsageOperations
from rookery_client.operations.webhooks import AsyncWebhooksOperations, WebhooksOperations
from rookery_client.operations.workspaces import AsyncWorkspacesOperations, WorkspacesOperations
from rookery_client.sessions import AsyncSession, Session


class Groups:
    """The groups of operations."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.memory = MemoryOperations(session)
        self.tools = ToolsOperations(session)
        self.servers = ServersOperations(session)
        self.analytics = AnalyticsOperations(session)
        self.plans = PlansOperations(session)
        self.templates = TemplatesOperations(session)
        self.sessions = SessionsOperations(session)
        self.content = ContentOperations(session)
        self.scoring = ScoringOperations(session)
        self.usage = UsageOperations(session)
        self.notifications = NotificationsOperations(session)
        self.keys = KeysOperations(session)
        self.workspaces = WorkspacesOperations(session)
        self.audit = AuditOperations(session)
        self.webhooks = WebhooksOperations(session)
        self.operation = OperationOperations(session)


class AsyncGroups:
    """The groups of operations."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session
        self.memory = AsyncMemoryOperations(session)
        self.tools = AsyncToolsOperations(session)
        self.servers = AsyncServersOperations(session)
        self.analytics = AsyncAnalyticsOperations(session)
        self.plans = AsyncPlansOperations(session)
        self.templates = AsyncTemplatesOperations(session)
        self.sessions = AsyncSessionsOperations(session)
        self.content = AsyncContentOperations(session)
        self.scoring = AsyncScoringOperations(session)
        self.usage = AsyncUsageOperations(session)
        self.notifications = AsyncNotificationsOperations(session)
        self.keys = AsyncKeysOperations(session)
        self.workspaces = AsyncWorkspacesOperations(session)
        self.audit = AsyncAuditOperations(session)
        self.webhooks = AsyncWebhooksOperations(session)
        self.operation = AsyncOperationOperations(session)
