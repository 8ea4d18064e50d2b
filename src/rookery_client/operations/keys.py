"""
Operations of `client.keys`.

Written by `make client` from the declarations of the operations. Change those, not this file.
"""

# fmt: off

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Literal


from rookery_client.calls import UNSET, Call, Unset, fill_path, given
from rookery_client.generated import models
from rookery_client.pages import AsyncPage, Page, PageBody
from rookery_client.sessions import AsyncSession, Session


class KeysOperations:
    """Operations of `client.keys`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def create_api_key(
        self, *, name: str, servers: Sequence[str] | Unset | None = UNSET, tools: Sequence[str] | Unset | None = UNSET,
        orgs: Sequence[str] | Unset | None = UNSET, projects: Sequence[str] | Unset | None = UNSET,
        tool_limits: Mapping[str, int] | Unset = UNSET, scopes: Sequence[str] | Unset = UNSET,
        preset: Literal["agent", "reader", "planner", "notifier"] | Unset | None = UNSET,
        rate_limit_tier: Literal["free", "pro", "business", "enterprise"] | Unset = UNSET,
        environment: Literal["live", "test"] | Unset | None = UNSET, expires_at: datetime | str | Unset | None = UNSET,
        agent_id: str | Unset | None = UNSET,
    ) -> models.ApiKeyWithSecret:
        """Create an API key."""
        return self._session.send(Call(
            operation="create_api_key", method="POST", path="/api/v1/api-keys", result=models.ApiKeyWithSecret,
            body=given(
                servers=servers, tools=tools, orgs=orgs, projects=projects, tool_limits=tool_limits, name=name, scopes=scopes,
                preset=preset, rate_limit_tier=rate_limit_tier, environment=environment, expires_at=expires_at, agent_id=agent_id,
            ),
            accepts_key=True,
        ))

    def list_api_keys(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, environment: Literal["live", "test"] | Unset = UNSET,
        status: Literal["Active", "Revoked", "Expired"] | Unset = UNSET, q: str | Unset = UNSET,
    ) -> Page[models.ApiKey]:
        """List API keys, newest first."""
        return self._session.send_page(Call(
            operation="list_api_keys", method="GET", path="/api/v1/api-keys", result=PageBody[models.ApiKey],
            query=given(page=page, per_page=per_page, environment=environment, status=status, q=q),
        ))

    def update_api_key(
        self, key_id: str, *, if_match: str | Unset = UNSET, servers: Sequence[str] | Unset | None = UNSET,
        tools: Sequence[str] | Unset | None = UNSET, orgs: Sequence[str] | Unset | None = UNSET,
        projects: Sequence[str] | Unset | None = UNSET, tool_limits: Mapping[str, int] | Unset = UNSET, name: str | Unset = UNSET,
        expires_at: datetime | str | Unset | None = UNSET, scopes: Sequence[str] | Unset = UNSET,
        rate_limit_tier: Literal["free", "pro", "business", "enterprise"] | Unset = UNSET, agent_id: str | Unset | None = UNSET,
    ) -> models.ApiKey:
        """Change an API key."""
        return self._session.send(Call(
            operation="update_api_key", method="PATCH", path=fill_path("/api/v1/api-keys/{key_id}", key_id=key_id), result=models.ApiKey,
            headers=given(**{"If-Match": if_match}),
            body=given(
                servers=servers, tools=tools, orgs=orgs, projects=projects, tool_limits=tool_limits, name=name, expires_at=expires_at,
                scopes=scopes, rate_limit_tier=rate_limit_tier, agent_id=agent_id,
            ),
        ))

    def get_api_key(self, key_id: str) -> models.ApiKey:
        """Show an API key."""
        return self._session.send(Call(
            operation="get_api_key", method="GET", path=fill_path("/api/v1/api-keys/{key_id}", key_id=key_id), result=models.ApiKey,
        ))

    def delete_api_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> None:
        """Delete an API key."""
        return self._session.send(Call(
            operation="delete_api_key", method="DELETE", path=fill_path("/api/v1/api-keys/{key_id}", key_id=key_id), result=type(None),
            headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    def get_api_key_totals(
        self, *, since: date | str | Unset = UNSET, until: date | str | Unset = UNSET,
        by: Sequence[Literal["key", "day", "method", "route", "status"]] | Unset = UNSET,
        format: Literal["json", "csv"] | Unset = UNSET,
    ) -> models.Usage:
        """Add up the calls of all API keys."""
        return self._session.send(Call(
            operation="get_api_key_totals", method="GET", path="/api/v1/api-keys/usage", result=models.Usage,
            query=given(since=since, until=until, by=by, format=format),
        ))

    def rotate_api_key(
        self, key_id: str, *, if_match: str | Unset = UNSET, grace_period_hours: int | Unset = UNSET,
    ) -> models.ApiKeyWithSecret:
        """Rotate an API key."""
        return self._session.send(Call(
            operation="rotate_api_key", method="POST", path=fill_path("/api/v1/api-keys/{key_id}/rotate", key_id=key_id),
            result=models.ApiKeyWithSecret, headers=given(**{"If-Match": if_match}), body=given(grace_period_hours=grace_period_hours),
            accepts_key=True,
        ))

    def suspend_api_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> models.ApiKey:
        """Suspend an API key."""
        return self._session.send(Call(
            operation="suspend_api_key", method="POST", path=fill_path("/api/v1/api-keys/{key_id}/suspend", key_id=key_id),
            result=models.ApiKey, headers=given(**{"If-Match": if_match}),
        ))

    def resume_api_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> models.ApiKey:
        """Resume a suspended API key."""
        return self._session.send(Call(
            operation="resume_api_key", method="POST", path=fill_path("/api/v1/api-keys/{key_id}/resume", key_id=key_id),
            result=models.ApiKey, headers=given(**{"If-Match": if_match}),
        ))

    def list_api_key_calls(
        self, key_id: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, since: datetime | str | Unset = UNSET,
        until: datetime | str | Unset = UNSET, status: int | Unset = UNSET, route: str | Unset = UNSET,
        format: Literal["json", "csv"] | Unset = UNSET,
    ) -> Page[models.Call]:
        """List the calls made with an API key, newest first."""
        return self._session.send_page(Call(
            operation="list_api_key_calls", method="GET", path=fill_path("/api/v1/api-keys/{key_id}/usage", key_id=key_id),
            result=PageBody[models.Call],
            query=given(page=page, per_page=per_page, since=since, until=until, status=status, route=route, format=format),
        ))

    def create_agent_key(
        self, *, name: str, servers: Sequence[str] | Unset | None = UNSET, tools: Sequence[str] | Unset | None = UNSET,
        orgs: Sequence[str] | Unset | None = UNSET, projects: Sequence[str] | Unset | None = UNSET,
        tool_limits: Mapping[str, int] | Unset = UNSET, permissions: Sequence[str] | Unset = UNSET,
        preset: Literal["agent", "reader", "planner", "notifier"] | Unset | None = UNSET, rate_limit: int | Unset = UNSET,
        expires_at: datetime | str | Unset | None = UNSET, agent_id: str | Unset | None = UNSET,
        ip_restriction: bool | Unset | None = UNSET, ip_list: Sequence[str] | Unset = UNSET,
    ) -> models.AgentKeyWithSecret:
        """Create an agent key."""
        return self._session.send(Call(
            operation="create_agent_key", method="POST", path="/api/v1/agent-keys", result=models.AgentKeyWithSecret,
            body=given(
                servers=servers, tools=tools, orgs=orgs, projects=projects, tool_limits=tool_limits, name=name, permissions=permissions,
                preset=preset, rate_limit=rate_limit, expires_at=expires_at, agent_id=agent_id, ip_restriction=ip_restriction,
                ip_list=ip_list,
            ),
            accepts_key=True,
        ))

    def list_agent_keys(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, environment: Literal["live", "test"] | Unset = UNSET,
        status: Literal["Active", "Revoked", "Expired"] | Unset = UNSET, q: str | Unset = UNSET,
    ) -> Page[models.AgentKey]:
        """List agent keys, newest first."""
        return self._session.send_page(Call(
            operation="list_agent_keys", method="GET", path="/api/v1/agent-keys", result=PageBody[models.AgentKey],
            query=given(page=page, per_page=per_page, environment=environment, status=status, q=q),
        ))

    def update_agent_key(
        self, key_id: str, *, if_match: str | Unset = UNSET, servers: Sequence[str] | Unset | None = UNSET,
        tools: Sequence[str] | Unset | None = UNSET, orgs: Sequence[str] | Unset | None = UNSET,
        projects: Sequence[str] | Unset | None = UNSET, tool_limits: Mapping[str, int] | Unset = UNSET, name: str | Unset = UNSET,
        expires_at: datetime | str | Unset | None = UNSET, permissions: Sequence[str] | Unset = UNSET,
        rate_limit: int | Unset = UNSET, ip_restriction: bool | Unset = UNSET, ip_list: Sequence[str] | Unset = UNSET,
    ) -> models.AgentKey:
        """Change an agent key."""
        return self._session.send(Call(
            operation="update_agent_key", method="PATCH", path=fill_path("/api/v1/agent-keys/{key_id}", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
            body=given(
                servers=servers, tools=tools, orgs=orgs, projects=projects, tool_limits=tool_limits, name=name, expires_at=expires_at,
                permissions=permissions, rate_limit=rate_limit, ip_restriction=ip_restriction, ip_list=ip_list,
            ),
        ))

    def get_agent_key(self, key_id: str) -> models.AgentKey:
        """Show an agent key."""
        return self._session.send(Call(
            operation="get_agent_key", method="GET", path=fill_path("/api/v1/agent-keys/{key_id}", key_id=key_id), result=models.AgentKey,
        ))

    def delete_agent_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> None:
        """Delete an agent key."""
        return self._session.send(Call(
            operation="delete_agent_key", method="DELETE", path=fill_path("/api/v1/agent-keys/{key_id}", key_id=key_id),
            result=type(None), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    def revoke_agent_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> models.AgentKey:
        """Revoke an agent key."""
        return self._session.send(Call(
            operation="revoke_agent_key", method="POST", path=fill_path("/api/v1/agent-keys/{key_id}/revoke", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
        ))

    def extend_agent_key(self, key_id: str, *, expires_at: datetime | str | None, if_match: str | Unset = UNSET) -> models.AgentKey:
        """Replace or remove the expiry of an agent key."""
        return self._session.send(Call(
            operation="extend_agent_key", method="POST", path=fill_path("/api/v1/agent-keys/{key_id}/extend", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}), body=given(expires_at=expires_at),
        ))

    def get_agent_key_permissions(
        self, key_id: str, *, has: str | Unset = UNSET, any: Sequence[str] | Unset = UNSET, all: Sequence[str] | Unset = UNSET,
    ) -> models.Permissions:
        """Show and check the permissions of an agent key."""
        return self._session.send(Call(
            operation="get_agent_key_permissions", method="GET", path=fill_path("/api/v1/agent-keys/{key_id}/permissions", key_id=key_id),
            result=models.Permissions, query=given(has=has, any=any, all=all),
        ))

    def replace_agent_key_permissions(
        self, key_id: str, *, permissions: Sequence[str], if_match: str | Unset = UNSET,
    ) -> models.AgentKey:
        """Replace the permissions of an agent key."""
        return self._session.send(Call(
            operation="replace_agent_key_permissions", method="PUT",
            path=fill_path("/api/v1/agent-keys/{key_id}/permissions", key_id=key_id), result=models.AgentKey,
            headers=given(**{"If-Match": if_match}), body=given(permissions=permissions),
        ))

    def list_agent_key_ips(self, key_id: str) -> models.Addresses:
        """Show the IP list of an agent key."""
        return self._session.send(Call(
            operation="list_agent_key_ips", method="GET", path=fill_path("/api/v1/agent-keys/{key_id}/ips", key_id=key_id),
            result=models.Addresses,
        ))

    def replace_agent_key_ips(
        self, key_id: str, *, if_match: str | Unset = UNSET, ips: Sequence[str] | Unset | None = UNSET,
        ip_list: Sequence[str] | Unset | None = UNSET, text: str | Unset | None = UNSET, ip_restriction: bool | Unset | None = UNSET,
    ) -> models.AgentKey:
        """Replace the IP list of an agent key."""
        return self._session.send(Call(
            operation="replace_agent_key_ips", method="PUT", path=fill_path("/api/v1/agent-keys/{key_id}/ips", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
            body=given(ips=ips, ip_list=ip_list, text=text, ip_restriction=ip_restriction),
        ))

    def add_agent_key_ips(
        self, key_id: str, *, if_match: str | Unset = UNSET, ips: Sequence[str] | Unset | None = UNSET,
        ip_list: Sequence[str] | Unset | None = UNSET, text: str | Unset | None = UNSET, ip_restriction: bool | Unset | None = UNSET,
    ) -> models.AgentKey:
        """Add to the IP list of an agent key."""
        return self._session.send(Call(
            operation="add_agent_key_ips", method="POST", path=fill_path("/api/v1/agent-keys/{key_id}/ips", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
            body=given(ips=ips, ip_list=ip_list, text=text, ip_restriction=ip_restriction),
        ))

    def remove_agent_key_ips(
        self, key_id: str, *, if_match: str | Unset = UNSET, ips: Sequence[str] | Unset | None = UNSET,
        ip_list: Sequence[str] | Unset | None = UNSET, text: str | Unset | None = UNSET, ip_restriction: bool | Unset | None = UNSET,
    ) -> models.AgentKey:
        """Remove from the IP list of an agent key."""
        return self._session.send(Call(
            operation="remove_agent_key_ips", method="DELETE", path=fill_path("/api/v1/agent-keys/{key_id}/ips", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
            body=given(ips=ips, ip_list=ip_list, text=text, ip_restriction=ip_restriction),
        ))

    def get_agent_key_totals(
        self, *, since: date | str | Unset = UNSET, until: date | str | Unset = UNSET,
        by: Sequence[Literal["key", "day", "method", "route", "status"]] | Unset = UNSET,
        format: Literal["json", "csv"] | Unset = UNSET,
    ) -> models.Usage:
        """Add up the calls of all agent keys."""
        return self._session.send(Call(
            operation="get_agent_key_totals", method="GET", path="/api/v1/agent-keys/usage", result=models.Usage,
            query=given(since=since, until=until, by=by, format=format),
        ))

    def rotate_agent_key(
        self, key_id: str, *, if_match: str | Unset = UNSET, grace_period_hours: int | Unset = UNSET,
    ) -> models.AgentKeyWithSecret:
        """Rotate an agent key."""
        return self._session.send(Call(
            operation="rotate_agent_key", method="POST", path=fill_path("/api/v1/agent-keys/{key_id}/rotate", key_id=key_id),
            result=models.AgentKeyWithSecret, headers=given(**{"If-Match": if_match}), body=given(grace_period_hours=grace_period_hours),
            accepts_key=True,
        ))

    def suspend_agent_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> models.AgentKey:
        """Suspend an agent key."""
        return self._session.send(Call(
            operation="suspend_agent_key", method="POST", path=fill_path("/api/v1/agent-keys/{key_id}/suspend", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
        ))

    def resume_agent_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> models.AgentKey:
        """Resume a suspended agent key."""
        return self._session.send(Call(
            operation="resume_agent_key", method="POST", path=fill_path("/api/v1/agent-keys/{key_id}/resume", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
        ))

    def list_agent_key_calls(
        self, key_id: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, since: datetime | str | Unset = UNSET,
        until: datetime | str | Unset = UNSET, status: int | Unset = UNSET, route: str | Unset = UNSET,
        format: Literal["json", "csv"] | Unset = UNSET,
    ) -> Page[models.Call]:
        """List the calls made with an agent key, newest first."""
        return self._session.send_page(Call(
            operation="list_agent_key_calls", method="GET", path=fill_path("/api/v1/agent-keys/{key_id}/usage", key_id=key_id),
            result=PageBody[models.Call],
            query=given(page=page, per_page=per_page, since=since, until=until, status=status, route=route, format=format),
        ))

    def get_rate_limit(self) -> models.RateLimit:
        """Show the key's rate limit."""
        return self._session.send(Call(operation="get_rate_limit", method="GET", path="/api/v1/rate-limit", result=models.RateLimit))

    def get_current_key(self) -> models.Who:
        """Show the key that sends the request."""
        return self._session.send(Call(operation="get_current_key", method="GET", path="/api/v1/whoami", result=models.Who))


class AsyncKeysOperations:
    """Operations of `client.keys`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def create_api_key(
        self, *, name: str, servers: Sequence[str] | Unset | None = UNSET, tools: Sequence[str] | Unset | None = UNSET,
        orgs: Sequence[str] | Unset | None = UNSET, projects: Sequence[str] | Unset | None = UNSET,
        tool_limits: Mapping[str, int] | Unset = UNSET, scopes: Sequence[str] | Unset = UNSET,
        preset: Literal["agent", "reader", "planner", "notifier"] | Unset | None = UNSET,
        rate_limit_tier: Literal["free", "pro", "business", "enterprise"] | Unset = UNSET,
        environment: Literal["live", "test"] | Unset | None = UNSET, expires_at: datetime | str | Unset | None = UNSET,
        agent_id: str | Unset | None = UNSET,
    ) -> models.ApiKeyWithSecret:
        """Create an API key."""
        return await self._session.send(Call(
            operation="create_api_key", method="POST", path="/api/v1/api-keys", result=models.ApiKeyWithSecret,
            body=given(
                servers=servers, tools=tools, orgs=orgs, projects=projects, tool_limits=tool_limits, name=name, scopes=scopes,
                preset=preset, rate_limit_tier=rate_limit_tier, environment=environment, expires_at=expires_at, agent_id=agent_id,
            ),
            accepts_key=True,
        ))

    async def list_api_keys(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, environment: Literal["live", "test"] | Unset = UNSET,
        status: Literal["Active", "Revoked", "Expired"] | Unset = UNSET, q: str | Unset = UNSET,
    ) -> AsyncPage[models.ApiKey]:
        """List API keys, newest first."""
        return await self._session.send_page(Call(
            operation="list_api_keys", method="GET", path="/api/v1/api-keys", result=PageBody[models.ApiKey],
            query=given(page=page, per_page=per_page, environment=environment, status=status, q=q),
        ))

    async def update_api_key(
        self, key_id: str, *, if_match: str | Unset = UNSET, servers: Sequence[str] | Unset | None = UNSET,
        tools: Sequence[str] | Unset | None = UNSET, orgs: Sequence[str] | Unset | None = UNSET,
        projects: Sequence[str] | Unset | None = UNSET, tool_limits: Mapping[str, int] | Unset = UNSET, name: str | Unset = UNSET,
        expires_at: datetime | str | Unset | None = UNSET, scopes: Sequence[str] | Unset = UNSET,
        rate_limit_tier: Literal["free", "pro", "business", "enterprise"] | Unset = UNSET, agent_id: str | Unset | None = UNSET,
    ) -> models.ApiKey:
        """Change an API key."""
        return await self._session.send(Call(
            operation="update_api_key", method="PATCH", path=fill_path("/api/v1/api-keys/{key_id}", key_id=key_id), result=models.ApiKey,
            headers=given(**{"If-Match": if_match}),
            body=given(
                servers=servers, tools=tools, orgs=orgs, projects=projects, tool_limits=tool_limits, name=name, expires_at=expires_at,
                scopes=scopes, rate_limit_tier=rate_limit_tier, agent_id=agent_id,
            ),
        ))

    async def get_api_key(self, key_id: str) -> models.ApiKey:
        """Show an API key."""
        return await self._session.send(Call(
            operation="get_api_key", method="GET", path=fill_path("/api/v1/api-keys/{key_id}", key_id=key_id), result=models.ApiKey,
        ))

    async def delete_api_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> None:
        """Delete an API key."""
        return await self._session.send(Call(
            operation="delete_api_key", method="DELETE", path=fill_path("/api/v1/api-keys/{key_id}", key_id=key_id), result=type(None),
            headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    async def get_api_key_totals(
        self, *, since: date | str | Unset = UNSET, until: date | str | Unset = UNSET,
        by: Sequence[Literal["key", "day", "method", "route", "status"]] | Unset = UNSET,
        format: Literal["json", "csv"] | Unset = UNSET,
    ) -> models.Usage:
        """Add up the calls of all API keys."""
        return await self._session.send(Call(
            operation="get_api_key_totals", method="GET", path="/api/v1/api-keys/usage", result=models.Usage,
            query=given(since=since, until=until, by=by, format=format),
        ))

    async def rotate_api_key(
        self, key_id: str, *, if_match: str | Unset = UNSET, grace_period_hours: int | Unset = UNSET,
    ) -> models.ApiKeyWithSecret:
        """Rotate an API key."""
        return await self._session.send(Call(
            operation="rotate_api_key", method="POST", path=fill_path("/api/v1/api-keys/{key_id}/rotate", key_id=key_id),
            result=models.ApiKeyWithSecret, headers=given(**{"If-Match": if_match}), body=given(grace_period_hours=grace_period_hours),
            accepts_key=True,
        ))

    async def suspend_api_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> models.ApiKey:
        """Suspend an API key."""
        return await self._session.send(Call(
            operation="suspend_api_key", method="POST", path=fill_path("/api/v1/api-keys/{key_id}/suspend", key_id=key_id),
            result=models.ApiKey, headers=given(**{"If-Match": if_match}),
        ))

    async def resume_api_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> models.ApiKey:
        """Resume a suspended API key."""
        return await self._session.send(Call(
            operation="resume_api_key", method="POST", path=fill_path("/api/v1/api-keys/{key_id}/resume", key_id=key_id),
            result=models.ApiKey, headers=given(**{"If-Match": if_match}),
        ))

    async def list_api_key_calls(
        self, key_id: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, since: datetime | str | Unset = UNSET,
        until: datetime | str | Unset = UNSET, status: int | Unset = UNSET, route: str | Unset = UNSET,
        format: Literal["json", "csv"] | Unset = UNSET,
    ) -> AsyncPage[models.Call]:
        """List the calls made with an API key, newest first."""
        return await self._session.send_page(Call(
            operation="list_api_key_calls", method="GET", path=fill_path("/api/v1/api-keys/{key_id}/usage", key_id=key_id),
            result=PageBody[models.Call],
            query=given(page=page, per_page=per_page, since=since, until=until, status=status, route=route, format=format),
        ))

    async def create_agent_key(
        self, *, name: str, servers: Sequence[str] | Unset | None = UNSET, tools: Sequence[str] | Unset | None = UNSET,
        orgs: Sequence[str] | Unset | None = UNSET, projects: Sequence[str] | Unset | None = UNSET,
        tool_limits: Mapping[str, int] | Unset = UNSET, permissions: Sequence[str] | Unset = UNSET,
        preset: Literal["agent", "reader", "planner", "notifier"] | Unset | None = UNSET, rate_limit: int | Unset = UNSET,
        expires_at: datetime | str | Unset | None = UNSET, agent_id: str | Unset | None = UNSET,
        ip_restriction: bool | Unset | None = UNSET, ip_list: Sequence[str] | Unset = UNSET,
    ) -> models.AgentKeyWithSecret:
        """Create an agent key."""
        return await self._session.send(Call(
            operation="create_agent_key", method="POST", path="/api/v1/agent-keys", result=models.AgentKeyWithSecret,
            body=given(
                servers=servers, tools=tools, orgs=orgs, projects=projects, tool_limits=tool_limits, name=name, permissions=permissions,
                preset=preset, rate_limit=rate_limit, expires_at=expires_at, agent_id=agent_id, ip_restriction=ip_restriction,
                ip_list=ip_list,
            ),
            accepts_key=True,
        ))

    async def list_agent_keys(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, environment: Literal["live", "test"] | Unset = UNSET,
        status: Literal["Active", "Revoked", "Expired"] | Unset = UNSET, q: str | Unset = UNSET,
    ) -> AsyncPage[models.AgentKey]:
        """List agent keys, newest first."""
        return await self._session.send_page(Call(
            operation="list_agent_keys", method="GET", path="/api/v1/agent-keys", result=PageBody[models.AgentKey],
            query=given(page=page, per_page=per_page, environment=environment, status=status, q=q),
        ))

    async def update_agent_key(
        self, key_id: str, *, if_match: str | Unset = UNSET, servers: Sequence[str] | Unset | None = UNSET,
        tools: Sequence[str] | Unset | None = UNSET, orgs: Sequence[str] | Unset | None = UNSET,
        projects: Sequence[str] | Unset | None = UNSET, tool_limits: Mapping[str, int] | Unset = UNSET, name: str | Unset = UNSET,
        expires_at: datetime | str | Unset | None = UNSET, permissions: Sequence[str] | Unset = UNSET,
        rate_limit: int | Unset = UNSET, ip_restriction: bool | Unset = UNSET, ip_list: Sequence[str] | Unset = UNSET,
    ) -> models.AgentKey:
        """Change an agent key."""
        return await self._session.send(Call(
            operation="update_agent_key", method="PATCH", path=fill_path("/api/v1/agent-keys/{key_id}", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
            body=given(
                servers=servers, tools=tools, orgs=orgs, projects=projects, tool_limits=tool_limits, name=name, expires_at=expires_at,
                permissions=permissions, rate_limit=rate_limit, ip_restriction=ip_restriction, ip_list=ip_list,
            ),
        ))

    async def get_agent_key(self, key_id: str) -> models.AgentKey:
        """Show an agent key."""
        return await self._session.send(Call(
            operation="get_agent_key", method="GET", path=fill_path("/api/v1/agent-keys/{key_id}", key_id=key_id), result=models.AgentKey,
        ))

    async def delete_agent_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> None:
        """Delete an agent key."""
        return await self._session.send(Call(
            operation="delete_agent_key", method="DELETE", path=fill_path("/api/v1/agent-keys/{key_id}", key_id=key_id),
            result=type(None), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    async def revoke_agent_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> models.AgentKey:
        """Revoke an agent key."""
        return await self._session.send(Call(
            operation="revoke_agent_key", method="POST", path=fill_path("/api/v1/agent-keys/{key_id}/revoke", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
        ))

    async def extend_agent_key(
        self, key_id: str, *, expires_at: datetime | str | None, if_match: str | Unset = UNSET,
    ) -> models.AgentKey:
        """Replace or remove the expiry of an agent key."""
        return await self._session.send(Call(
            operation="extend_agent_key", method="POST", path=fill_path("/api/v1/agent-keys/{key_id}/extend", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}), body=given(expires_at=expires_at),
        ))

    async def get_agent_key_permissions(
        self, key_id: str, *, has: str | Unset = UNSET, any: Sequence[str] | Unset = UNSET, all: Sequence[str] | Unset = UNSET,
    ) -> models.Permissions:
        """Show and check the permissions of an agent key."""
        return await self._session.send(Call(
            operation="get_agent_key_permissions", method="GET", path=fill_path("/api/v1/agent-keys/{key_id}/permissions", key_id=key_id),
            result=models.Permissions, query=given(has=has, any=any, all=all),
        ))

    async def replace_agent_key_permissions(
        self, key_id: str, *, permissions: Sequence[str], if_match: str | Unset = UNSET,
    ) -> models.AgentKey:
        """Replace the permissions of an agent key."""
        return await self._session.send(Call(
            operation="replace_agent_key_permissions", method="PUT",
            path=fill_path("/api/v1/agent-keys/{key_id}/permissions", key_id=key_id), result=models.AgentKey,
            headers=given(**{"If-Match": if_match}), body=given(permissions=permissions),
        ))

    async def list_agent_key_ips(self, key_id: str) -> models.Addresses:
        """Show the IP list of an agent key."""
        return await self._session.send(Call(
            operation="list_agent_key_ips", method="GET", path=fill_path("/api/v1/agent-keys/{key_id}/ips", key_id=key_id),
            result=models.Addresses,
        ))

    async def replace_agent_key_ips(
        self, key_id: str, *, if_match: str | Unset = UNSET, ips: Sequence[str] | Unset | None = UNSET,
        ip_list: Sequence[str] | Unset | None = UNSET, text: str | Unset | None = UNSET, ip_restriction: bool | Unset | None = UNSET,
    ) -> models.AgentKey:
        """Replace the IP list of an agent key."""
        return await self._session.send(Call(
            operation="replace_agent_key_ips", method="PUT", path=fill_path("/api/v1/agent-keys/{key_id}/ips", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
            body=given(ips=ips, ip_list=ip_list, text=text, ip_restriction=ip_restriction),
        ))

    async def add_agent_key_ips(
        self, key_id: str, *, if_match: str | Unset = UNSET, ips: Sequence[str] | Unset | None = UNSET,
        ip_list: Sequence[str] | Unset | None = UNSET, text: str | Unset | None = UNSET, ip_restriction: bool | Unset | None = UNSET,
    ) -> models.AgentKey:
        """Add to the IP list of an agent key."""
        return await self._session.send(Call(
            operation="add_agent_key_ips", method="POST", path=fill_path("/api/v1/agent-keys/{key_id}/ips", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
            body=given(ips=ips, ip_list=ip_list, text=text, ip_restriction=ip_restriction),
        ))

    async def remove_agent_key_ips(
        self, key_id: str, *, if_match: str | Unset = UNSET, ips: Sequence[str] | Unset | None = UNSET,
        ip_list: Sequence[str] | Unset | None = UNSET, text: str | Unset | None = UNSET, ip_restriction: bool | Unset | None = UNSET,
    ) -> models.AgentKey:
        """Remove from the IP list of an agent key."""
        return await self._session.send(Call(
            operation="remove_agent_key_ips", method="DELETE", path=fill_path("/api/v1/agent-keys/{key_id}/ips", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
            body=given(ips=ips, ip_list=ip_list, text=text, ip_restriction=ip_restriction),
        ))

    async def get_agent_key_totals(
        self, *, since: date | str | Unset = UNSET, until: date | str | Unset = UNSET,
        by: Sequence[Literal["key", "day", "method", "route", "status"]] | Unset = UNSET,
        format: Literal["json", "csv"] | Unset = UNSET,
    ) -> models.Usage:
        """Add up the calls of all agent keys."""
        return await self._session.send(Call(
            operation="get_agent_key_totals", method="GET", path="/api/v1/agent-keys/usage", result=models.Usage,
            query=given(since=since, until=until, by=by, format=format),
        ))

    async def rotate_agent_key(
        self, key_id: str, *, if_match: str | Unset = UNSET, grace_period_hours: int | Unset = UNSET,
    ) -> models.AgentKeyWithSecret:
        """Rotate an agent key."""
        return await self._session.send(Call(
            operation="rotate_agent_key", method="POST", path=fill_path("/api/v1/agent-keys/{key_id}/rotate", key_id=key_id),
            result=models.AgentKeyWithSecret, headers=given(**{"If-Match": if_match}), body=given(grace_period_hours=grace_period_hours),
            accepts_key=True,
        ))

    async def suspend_agent_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> models.AgentKey:
        """Suspend an agent key."""
        return await self._session.send(Call(
            operation="suspend_agent_key", method="POST", path=fill_path("/api/v1/agent-keys/{key_id}/suspend", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
        ))

    async def resume_agent_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> models.AgentKey:
        """Resume a suspended agent key."""
        return await self._session.send(Call(
            operation="resume_agent_key", method="POST", path=fill_path("/api/v1/agent-keys/{key_id}/resume", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
        ))

    async def list_agent_key_calls(
        self, key_id: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, since: datetime | str | Unset = UNSET,
        until: datetime | str | Unset = UNSET, status: int | Unset = UNSET, route: str | Unset = UNSET,
        format: Literal["json", "csv"] | Unset = UNSET,
    ) -> AsyncPage[models.Call]:
        """List the calls made with an agent key, newest first."""
        return await self._session.send_page(Call(
            operation="list_agent_key_calls", method="GET", path=fill_path("/api/v1/agent-keys/{key_id}/usage", key_id=key_id),
            result=PageBody[models.Call],
            query=given(page=page, per_page=per_page, since=since, until=until, status=status, route=route, format=format),
        ))

    async def get_rate_limit(self) -> models.RateLimit:
        """Show the key's rate limit."""
        return await self._session.send(Call(
            operation="get_rate_limit", method="GET", path="/api/v1/rate-limit", result=models.RateLimit,
        ))

    async def get_current_key(self) -> models.Who:
        """Show the key that sends the request."""
        return await self._session.send(Call(operation="get_current_key", method="GET", path="/api/v1/whoami", result=models.Who))
