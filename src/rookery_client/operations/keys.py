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
        agent_id: str | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.ApiKeyWithSecret:
        """
        Create an API key.

        `plaintext_key` is returned only in this response. The caller must have every scope and limit that it gives to the key.

        Requires the scope `keys:write`.

        Args:
            name: The purpose of the key.
            servers: Ids of tool servers; null: all.
            tools: server/tool patterns; null: all.
            orgs: Orgs whose memories the key can access; null: all.
            projects: Projects whose memories the key can access; null: all.
            tool_limits: Calls per minute, by server/tool pattern.
            scopes: For example brain:read, mcp:*, *:read or *.
            preset: Permissions to add: those of agent, reader, planner or notifier.
            rate_limit_tier: Default: `"pro"`.
            environment: live or test. A test key acts in a sandbox. Default: the environment of the calling key.
            expires_at: Null: the key never expires.
            agent_id: The agent that the key is bound to.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="create_api_key", method="POST", path="/api/v1/api-keys", result=models.ApiKeyWithSecret,
            body=given(
                servers=servers, tools=tools, orgs=orgs, projects=projects, tool_limits=tool_limits, name=name, scopes=scopes,
                preset=preset, rate_limit_tier=rate_limit_tier, environment=environment, expires_at=expires_at, agent_id=agent_id,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    def list_api_keys(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        environment: Literal["live", "test"] | Unset = UNSET, status: Literal["Active", "Revoked", "Expired"] | Unset = UNSET,
        q: str | Unset = UNSET,
    ) -> Page[models.ApiKey]:
        """
        List the keys of the workspace, newest first. A test key sees test keys only.

        Requires the scope `keys:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            environment: Only live keys, or only test keys.
            status: Only keys in this state; a suspended one counts as Revoked.
            q: A part of the name.
        """
        return self._session.send_page(Call(
            operation="list_api_keys", method="GET", path="/api/v1/api-keys", result=PageBody[models.ApiKey],
            query=given(cursor=cursor, page=page, per_page=per_page, environment=environment, status=status, q=q),
        ))

    def update_api_key(
        self, key_id: str, *, if_match: str | Unset = UNSET, name: str | Unset = UNSET,
        expires_at: datetime | str | Unset | None = UNSET, servers: Sequence[str] | Unset | None = UNSET,
        tools: Sequence[str] | Unset | None = UNSET, orgs: Sequence[str] | Unset | None = UNSET,
        projects: Sequence[str] | Unset | None = UNSET, tool_limits: Mapping[str, int] | Unset = UNSET,
        scopes: Sequence[str] | Unset = UNSET, rate_limit_tier: Literal["free", "pro", "business", "enterprise"] | Unset = UNSET,
        agent_id: str | Unset | None = UNSET,
    ) -> models.ApiKey:
        """
        Change the name, scopes, limits or expiry of an API key. The change applies from the next request on.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            name: The purpose of the key.
            expires_at: Null: the key never expires.
            servers: Ids of tool servers; null: all.
            tools: server/tool patterns; null: all.
            orgs: Orgs whose memories the key can access; null: all.
            projects: Projects whose memories the key can access; null: all.
            tool_limits: Calls per minute, by server/tool pattern.
            scopes: For example brain:read, mcp:*, *:read or *.
            agent_id: The agent that the key is bound to; null: none, so it may name any agent.
        """
        return self._session.send(Call(
            operation="update_api_key", method="PATCH", path=fill_path("/api/v1/api-keys/{key_id}", key_id=key_id), result=models.ApiKey,
            headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, expires_at=expires_at, servers=servers, tools=tools, orgs=orgs, projects=projects, tool_limits=tool_limits,
                scopes=scopes, rate_limit_tier=rate_limit_tier, agent_id=agent_id,
            ),
        ))

    def get_api_key(self, key_id: str) -> models.ApiKey:
        """
        Return a key without its secret.

        Its ETag changes with its settings, not with `call_count`, `last_used_at`, `last_used_ip` and `status`.

        Requires the scope `keys:read`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
        """
        return self._session.send(Call(
            operation="get_api_key", method="GET", path=fill_path("/api/v1/api-keys/{key_id}", key_id=key_id), result=models.ApiKey,
        ))

    def delete_api_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> None:
        """
        Delete a key. It is rejected from the next request on.

        Requires the scope `keys:delete`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="delete_api_key", method="DELETE", path=fill_path("/api/v1/api-keys/{key_id}", key_id=key_id), result=type(None),
            headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    def get_api_key_totals(
        self, *, since: date | str | Unset = UNSET, until: date | str | Unset = UNSET,
        by: Sequence[Literal["key", "day", "method", "route", "status"]] | Unset = UNSET,
        format: Literal["json", "csv"] | Unset = UNSET,
    ) -> models.Usage:
        """
        Return the number of calls by day, status and route. Calls of deleted keys are included.

        Requires the scope `keys:read`.

        Args:
            since: The first day, UTC.
            until: The last day, UTC.
            by: Fields to group by: key, day, method, route, status.
            format: By default json, or csv with `Accept: text/csv`.
        """
        return self._session.send(Call(
            operation="get_api_key_totals", method="GET", path="/api/v1/api-keys/usage", result=models.Usage,
            query=given(since=since, until=until, by=by, format=format),
        ))

    def get_api_key_totals_csv(
        self, *, since: date | str | Unset = UNSET, until: date | str | Unset = UNSET,
        by: Sequence[Literal["key", "day", "method", "route", "status"]] | Unset = UNSET,
        format: Literal["json", "csv"] | Unset = UNSET,
    ) -> str:
        """
        Return the number of calls by day, status and route. Calls of deleted keys are included.

        Requires the scope `keys:read`.

        Args:
            since: The first day, UTC.
            until: The last day, UTC.
            by: Fields to group by: key, day, method, route, status.
            format: By default json, or csv with `Accept: text/csv`.
        """
        return self._session.send(Call(
            operation="get_api_key_totals", method="GET", path="/api/v1/api-keys/usage", result=str,
            query=given(since=since, until=until, by=by, format=format), reader="text", accept="text/csv",
        ))

    def rotate_api_key(
        self, key_id: str, *, if_match: str | Unset = UNSET, grace_period_hours: int | Unset = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.ApiKeyWithSecret:
        """
        Create a successor with the same settings. Both keys work until the grace period ends, then the old one is deleted.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            grace_period_hours: Hours during which the old key still works. Default: `24`.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="rotate_api_key", method="POST", path=fill_path("/api/v1/api-keys/{key_id}/rotate", key_id=key_id),
            result=models.ApiKeyWithSecret, headers=given(**{"If-Match": if_match}), body=given(grace_period_hours=grace_period_hours),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    def suspend_api_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> models.ApiKey:
        """
        Suspend a key: its requests are rejected until it is resumed.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="suspend_api_key", method="POST", path=fill_path("/api/v1/api-keys/{key_id}/suspend", key_id=key_id),
            result=models.ApiKey, headers=given(**{"If-Match": if_match}),
        ))

    def resume_api_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> models.ApiKey:
        """
        End the suspension of a key.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="resume_api_key", method="POST", path=fill_path("/api/v1/api-keys/{key_id}/resume", key_id=key_id),
            result=models.ApiKey, headers=given(**{"If-Match": if_match}),
        ))

    def list_api_key_calls(
        self, key_id: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET, status: int | Unset = UNSET,
        route: str | Unset = UNSET, format: Literal["json", "csv"] | Unset = UNSET,
    ) -> Page[models.Call]:
        """
        List the calls of a key, newest first. Calls of a deleted key appear in the totals only.

        Requires the scope `keys:read`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            since: Only calls at this time or later.
            until: Only calls before this time.
            status: Only calls with this status.
            route: The path's pattern, as in `route` of a call.
            format: CSV contains all matching calls instead of one page. `Accept: text/csv` asks for it too.
        """
        return self._session.send_page(Call(
            operation="list_api_key_calls", method="GET", path=fill_path("/api/v1/api-keys/{key_id}/usage", key_id=key_id),
            result=PageBody[models.Call],
            query=given(cursor=cursor, page=page, per_page=per_page, since=since, until=until, status=status, route=route, format=format),
        ))

    def list_api_key_calls_csv(
        self, key_id: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET, status: int | Unset = UNSET,
        route: str | Unset = UNSET, format: Literal["json", "csv"] | Unset = UNSET,
    ) -> str:
        """
        List the calls of a key, newest first. Calls of a deleted key appear in the totals only.

        Requires the scope `keys:read`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            since: Only calls at this time or later.
            until: Only calls before this time.
            status: Only calls with this status.
            route: The path's pattern, as in `route` of a call.
            format: CSV contains all matching calls instead of one page. `Accept: text/csv` asks for it too.
        """
        return self._session.send(Call(
            operation="list_api_key_calls", method="GET", path=fill_path("/api/v1/api-keys/{key_id}/usage", key_id=key_id), result=str,
            query=given(cursor=cursor, page=page, per_page=per_page, since=since, until=until, status=status, route=route, format=format),
            reader="text", accept="text/csv",
        ))

    def create_agent_key(
        self, *, name: str, servers: Sequence[str] | Unset | None = UNSET, tools: Sequence[str] | Unset | None = UNSET,
        orgs: Sequence[str] | Unset | None = UNSET, projects: Sequence[str] | Unset | None = UNSET,
        tool_limits: Mapping[str, int] | Unset = UNSET, permissions: Sequence[str] | Unset = UNSET,
        preset: Literal["agent", "reader", "planner", "notifier"] | Unset | None = UNSET, rate_limit: int | Unset = UNSET,
        expires_at: datetime | str | Unset | None = UNSET, agent_id: str | Unset | None = UNSET,
        ip_restriction: bool | Unset | None = UNSET, ip_list: Sequence[str] | Unset = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.AgentKeyWithSecret:
        """
        Create an agent key.

        `key` is returned only in this response. The caller must have every permission and limit that it gives to the key.

        Requires the scope `keys:write`.

        Args:
            name: The purpose of the key.
            servers: Ids of tool servers; null: all.
            tools: server/tool patterns; null: all.
            orgs: Orgs whose memories the key can access; null: all.
            projects: Projects whose memories the key can access; null: all.
            tool_limits: Calls per minute, by server/tool pattern.
            permissions: For example brain:read, mcp:*, *:read or *.
            preset: Permissions to add: those of agent, reader, planner or notifier.
            rate_limit: Requests per minute. Default: `600`.
            expires_at: Null: the key never expires.
            agent_id: Default: a slug of the name, unique in the workspace. It never changes.
            ip_restriction: Enforce the IP list. Default: true if the list has an entry. An enforced empty list blocks every request.
            ip_list: Addresses and CIDR ranges, IPv4 or IPv6.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="create_agent_key", method="POST", path="/api/v1/agent-keys", result=models.AgentKeyWithSecret,
            body=given(
                servers=servers, tools=tools, orgs=orgs, projects=projects, tool_limits=tool_limits, name=name, permissions=permissions,
                preset=preset, rate_limit=rate_limit, expires_at=expires_at, agent_id=agent_id, ip_restriction=ip_restriction,
                ip_list=ip_list,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    def list_agent_keys(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        environment: Literal["live", "test"] | Unset = UNSET, status: Literal["Active", "Revoked", "Expired"] | Unset = UNSET,
        q: str | Unset = UNSET,
    ) -> Page[models.AgentKey]:
        """
        List the keys of the workspace, newest first. A test key sees test keys only.

        Requires the scope `keys:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            environment: Only live keys, or only test keys.
            status: Only keys in this state; a suspended one counts as Revoked.
            q: A part of the name.
        """
        return self._session.send_page(Call(
            operation="list_agent_keys", method="GET", path="/api/v1/agent-keys", result=PageBody[models.AgentKey],
            query=given(cursor=cursor, page=page, per_page=per_page, environment=environment, status=status, q=q),
        ))

    def update_agent_key(
        self, key_id: str, *, if_match: str | Unset = UNSET, name: str | Unset = UNSET,
        expires_at: datetime | str | Unset | None = UNSET, servers: Sequence[str] | Unset | None = UNSET,
        tools: Sequence[str] | Unset | None = UNSET, orgs: Sequence[str] | Unset | None = UNSET,
        projects: Sequence[str] | Unset | None = UNSET, tool_limits: Mapping[str, int] | Unset = UNSET,
        permissions: Sequence[str] | Unset = UNSET, rate_limit: int | Unset = UNSET, ip_restriction: bool | Unset = UNSET,
        ip_list: Sequence[str] | Unset = UNSET,
    ) -> models.AgentKey:
        """
        Change the name, limits or lists of an agent key. The change applies from the next request on; `agent_id` cannot change.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            name: The purpose of the key.
            expires_at: Null: the key never expires.
            servers: Ids of tool servers; null: all.
            tools: server/tool patterns; null: all.
            orgs: Orgs whose memories the key can access; null: all.
            projects: Projects whose memories the key can access; null: all.
            tool_limits: Calls per minute, by server/tool pattern.
            permissions: For example brain:read, mcp:*, *:read or *.
            rate_limit: Requests per minute.
            ip_restriction: Enforce the IP list. If omitted, setting a list with at least one entry enforces it.
            ip_list: Addresses and CIDR ranges, IPv4 or IPv6.
        """
        return self._session.send(Call(
            operation="update_agent_key", method="PATCH", path=fill_path("/api/v1/agent-keys/{key_id}", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, expires_at=expires_at, servers=servers, tools=tools, orgs=orgs, projects=projects, tool_limits=tool_limits,
                permissions=permissions, rate_limit=rate_limit, ip_restriction=ip_restriction, ip_list=ip_list,
            ),
        ))

    def get_agent_key(self, key_id: str) -> models.AgentKey:
        """
        Return a key without its secret.

        Its ETag changes with its settings, not with `call_count`, `last_used_at`, `last_used_ip` and `status`.

        Requires the scope `keys:read`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
        """
        return self._session.send(Call(
            operation="get_agent_key", method="GET", path=fill_path("/api/v1/agent-keys/{key_id}", key_id=key_id), result=models.AgentKey,
        ))

    def delete_agent_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> None:
        """
        Delete a key. It is rejected from the next request on.

        Requires the scope `keys:delete`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="delete_agent_key", method="DELETE", path=fill_path("/api/v1/agent-keys/{key_id}", key_id=key_id),
            result=type(None), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    def revoke_agent_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> models.AgentKey:
        """
        Revoke a key for good. Its requests are rejected with `key_revoked` from then on. Revoking it again changes nothing.

        Requires the scope `keys:delete`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="revoke_agent_key", method="POST", path=fill_path("/api/v1/agent-keys/{key_id}/revoke", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
        ))

    def extend_agent_key(self, key_id: str, *, expires_at: datetime | str | None, if_match: str | Unset = UNSET) -> models.AgentKey:
        """
        Replace the expiry, or remove it with null. An expired key becomes active again; a revoked one does not.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            expires_at: Null: the key never expires.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="extend_agent_key", method="POST", path=fill_path("/api/v1/agent-keys/{key_id}/extend", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}), body=given(expires_at=expires_at),
        ))

    def get_agent_key_permissions(
        self, key_id: str, *, has: str | Unset = UNSET, any: Sequence[str] | Unset = UNSET, all: Sequence[str] | Unset = UNSET,
    ) -> models.Permissions:
        """
        Return the permissions of a key, and whether it has one, any or all of the permissions that the query names.

        The ETag is the key's.

        Requires the scope `keys:read`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            has: A permission: does the key have it?
            any: Permissions: does the key have any?
            all: Permissions: does the key have all?
        """
        return self._session.send(Call(
            operation="get_agent_key_permissions", method="GET", path=fill_path("/api/v1/agent-keys/{key_id}/permissions", key_id=key_id),
            result=models.Permissions, query=given(has=has, any=any, all=all),
        ))

    def replace_agent_key_permissions(
        self, key_id: str, *, permissions: Sequence[str], if_match: str | Unset = UNSET,
    ) -> models.AgentKey:
        """
        Replace all permissions of a key. The caller must have the old and the new ones.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            permissions: For example brain:read, mcp:*, *:read or *.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="replace_agent_key_permissions", method="PUT",
            path=fill_path("/api/v1/agent-keys/{key_id}/permissions", key_id=key_id), result=models.AgentKey,
            headers=given(**{"If-Match": if_match}), body=given(permissions=permissions),
        ))

    def list_agent_key_ips(self, key_id: str) -> models.Addresses:
        """
        Return the addresses and CIDR ranges that the key may be used from, and whether the list is enforced.

        The ETag is the key's.

        Requires the scope `audit:read`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
        """
        return self._session.send(Call(
            operation="list_agent_key_ips", method="GET", path=fill_path("/api/v1/agent-keys/{key_id}/ips", key_id=key_id),
            result=models.Addresses,
        ))

    def replace_agent_key_ips(
        self, key_id: str, *, if_match: str | Unset = UNSET, ips: Sequence[str] | Unset | None = UNSET,
        text: str | Unset | None = UNSET, ip_restriction: bool | Unset | None = UNSET,
    ) -> models.AgentKey:
        """
        Replace the list of addresses and CIDR ranges that the key may be used from.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            ips: Addresses and CIDR ranges, IPv4 or IPv6.
            text: One entry per line. Lines that start with # are ignored.
            ip_restriction: Enforce the list. If omitted, setting or adding an address enforces the list; false stores it without
                enforcing it. An enforced empty list blocks every request.
        """
        return self._session.send(Call(
            operation="replace_agent_key_ips", method="PUT", path=fill_path("/api/v1/agent-keys/{key_id}/ips", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
            body=given(ips=ips, text=text, ip_restriction=ip_restriction),
        ))

    def add_agent_key_ips(
        self, key_id: str, *, if_match: str | Unset = UNSET, ips: Sequence[str] | Unset | None = UNSET,
        text: str | Unset | None = UNSET, ip_restriction: bool | Unset | None = UNSET,
    ) -> models.AgentKey:
        """
        Add addresses and CIDR ranges to the list that the key may be used from.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            ips: Addresses and CIDR ranges, IPv4 or IPv6.
            text: One entry per line. Lines that start with # are ignored.
            ip_restriction: Enforce the list. If omitted, setting or adding an address enforces the list; false stores it without
                enforcing it. An enforced empty list blocks every request.
        """
        return self._session.send(Call(
            operation="add_agent_key_ips", method="POST", path=fill_path("/api/v1/agent-keys/{key_id}/ips", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
            body=given(ips=ips, text=text, ip_restriction=ip_restriction),
        ))

    def remove_agent_key_ips(
        self, key_id: str, *, if_match: str | Unset = UNSET, ips: Sequence[str] | Unset | None = UNSET,
        text: str | Unset | None = UNSET, ip_restriction: bool | Unset | None = UNSET,
    ) -> models.AgentKey:
        """
        Remove addresses and CIDR ranges from the list. Entries that are not in the list are ignored.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            ips: Addresses and CIDR ranges, IPv4 or IPv6.
            text: One entry per line. Lines that start with # are ignored.
            ip_restriction: Enforce the list. If omitted, setting or adding an address enforces the list; false stores it without
                enforcing it. An enforced empty list blocks every request.
        """
        return self._session.send(Call(
            operation="remove_agent_key_ips", method="DELETE", path=fill_path("/api/v1/agent-keys/{key_id}/ips", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
            body=given(ips=ips, text=text, ip_restriction=ip_restriction),
        ))

    def get_agent_key_totals(
        self, *, since: date | str | Unset = UNSET, until: date | str | Unset = UNSET,
        by: Sequence[Literal["key", "day", "method", "route", "status"]] | Unset = UNSET,
        format: Literal["json", "csv"] | Unset = UNSET,
    ) -> models.Usage:
        """
        Return the number of calls by day, status and route. Calls of deleted keys are included.

        Requires the scope `keys:read`.

        Args:
            since: The first day, UTC.
            until: The last day, UTC.
            by: Fields to group by: key, day, method, route, status.
            format: By default json, or csv with `Accept: text/csv`.
        """
        return self._session.send(Call(
            operation="get_agent_key_totals", method="GET", path="/api/v1/agent-keys/usage", result=models.Usage,
            query=given(since=since, until=until, by=by, format=format),
        ))

    def get_agent_key_totals_csv(
        self, *, since: date | str | Unset = UNSET, until: date | str | Unset = UNSET,
        by: Sequence[Literal["key", "day", "method", "route", "status"]] | Unset = UNSET,
        format: Literal["json", "csv"] | Unset = UNSET,
    ) -> str:
        """
        Return the number of calls by day, status and route. Calls of deleted keys are included.

        Requires the scope `keys:read`.

        Args:
            since: The first day, UTC.
            until: The last day, UTC.
            by: Fields to group by: key, day, method, route, status.
            format: By default json, or csv with `Accept: text/csv`.
        """
        return self._session.send(Call(
            operation="get_agent_key_totals", method="GET", path="/api/v1/agent-keys/usage", result=str,
            query=given(since=since, until=until, by=by, format=format), reader="text", accept="text/csv",
        ))

    def rotate_agent_key(
        self, key_id: str, *, if_match: str | Unset = UNSET, grace_period_hours: int | Unset = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.AgentKeyWithSecret:
        """
        Create a successor with the same settings. Both keys work until the grace period ends, then the old one is deleted.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            grace_period_hours: Hours during which the old key still works. Default: `24`.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="rotate_agent_key", method="POST", path=fill_path("/api/v1/agent-keys/{key_id}/rotate", key_id=key_id),
            result=models.AgentKeyWithSecret, headers=given(**{"If-Match": if_match}), body=given(grace_period_hours=grace_period_hours),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    def suspend_agent_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> models.AgentKey:
        """
        Suspend a key: its requests are rejected until it is resumed.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="suspend_agent_key", method="POST", path=fill_path("/api/v1/agent-keys/{key_id}/suspend", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
        ))

    def resume_agent_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> models.AgentKey:
        """
        End the suspension of a key.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="resume_agent_key", method="POST", path=fill_path("/api/v1/agent-keys/{key_id}/resume", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
        ))

    def list_agent_key_calls(
        self, key_id: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET, status: int | Unset = UNSET,
        route: str | Unset = UNSET, format: Literal["json", "csv"] | Unset = UNSET,
    ) -> Page[models.Call]:
        """
        List the calls of a key, newest first. Calls of a deleted key appear in the totals only.

        Requires the scope `keys:read`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            since: Only calls at this time or later.
            until: Only calls before this time.
            status: Only calls with this status.
            route: The path's pattern, as in `route` of a call.
            format: CSV contains all matching calls instead of one page. `Accept: text/csv` asks for it too.
        """
        return self._session.send_page(Call(
            operation="list_agent_key_calls", method="GET", path=fill_path("/api/v1/agent-keys/{key_id}/usage", key_id=key_id),
            result=PageBody[models.Call],
            query=given(cursor=cursor, page=page, per_page=per_page, since=since, until=until, status=status, route=route, format=format),
        ))

    def list_agent_key_calls_csv(
        self, key_id: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET, status: int | Unset = UNSET,
        route: str | Unset = UNSET, format: Literal["json", "csv"] | Unset = UNSET,
    ) -> str:
        """
        List the calls of a key, newest first. Calls of a deleted key appear in the totals only.

        Requires the scope `keys:read`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            since: Only calls at this time or later.
            until: Only calls before this time.
            status: Only calls with this status.
            route: The path's pattern, as in `route` of a call.
            format: CSV contains all matching calls instead of one page. `Accept: text/csv` asks for it too.
        """
        return self._session.send(Call(
            operation="list_agent_key_calls", method="GET", path=fill_path("/api/v1/agent-keys/{key_id}/usage", key_id=key_id),
            result=str,
            query=given(cursor=cursor, page=page, per_page=per_page, since=since, until=until, status=status, route=route, format=format),
            reader="text", accept="text/csv",
        ))

    def get_rate_limit(self) -> models.RateLimit:
        """
        Return the limit of the key that sends the request, how much of it is used, and when the window ends.

        Requires a key with any scope. Does not count against the key's rate limit.
        """
        return self._session.send(Call(operation="get_rate_limit", method="GET", path="/api/v1/rate-limit", result=models.RateLimit))

    def get_current_key(self) -> models.Who:
        """
        Return the key that sends the request and what it may do. Its IP list is included only with the scope `audit:read`.

        Requires a key with any scope. Does not count against the key's rate limit.
        """
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
        agent_id: str | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.ApiKeyWithSecret:
        """
        Create an API key.

        `plaintext_key` is returned only in this response. The caller must have every scope and limit that it gives to the key.

        Requires the scope `keys:write`.

        Args:
            name: The purpose of the key.
            servers: Ids of tool servers; null: all.
            tools: server/tool patterns; null: all.
            orgs: Orgs whose memories the key can access; null: all.
            projects: Projects whose memories the key can access; null: all.
            tool_limits: Calls per minute, by server/tool pattern.
            scopes: For example brain:read, mcp:*, *:read or *.
            preset: Permissions to add: those of agent, reader, planner or notifier.
            rate_limit_tier: Default: `"pro"`.
            environment: live or test. A test key acts in a sandbox. Default: the environment of the calling key.
            expires_at: Null: the key never expires.
            agent_id: The agent that the key is bound to.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="create_api_key", method="POST", path="/api/v1/api-keys", result=models.ApiKeyWithSecret,
            body=given(
                servers=servers, tools=tools, orgs=orgs, projects=projects, tool_limits=tool_limits, name=name, scopes=scopes,
                preset=preset, rate_limit_tier=rate_limit_tier, environment=environment, expires_at=expires_at, agent_id=agent_id,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def list_api_keys(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        environment: Literal["live", "test"] | Unset = UNSET, status: Literal["Active", "Revoked", "Expired"] | Unset = UNSET,
        q: str | Unset = UNSET,
    ) -> AsyncPage[models.ApiKey]:
        """
        List the keys of the workspace, newest first. A test key sees test keys only.

        Requires the scope `keys:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            environment: Only live keys, or only test keys.
            status: Only keys in this state; a suspended one counts as Revoked.
            q: A part of the name.
        """
        return await self._session.send_page(Call(
            operation="list_api_keys", method="GET", path="/api/v1/api-keys", result=PageBody[models.ApiKey],
            query=given(cursor=cursor, page=page, per_page=per_page, environment=environment, status=status, q=q),
        ))

    async def update_api_key(
        self, key_id: str, *, if_match: str | Unset = UNSET, name: str | Unset = UNSET,
        expires_at: datetime | str | Unset | None = UNSET, servers: Sequence[str] | Unset | None = UNSET,
        tools: Sequence[str] | Unset | None = UNSET, orgs: Sequence[str] | Unset | None = UNSET,
        projects: Sequence[str] | Unset | None = UNSET, tool_limits: Mapping[str, int] | Unset = UNSET,
        scopes: Sequence[str] | Unset = UNSET, rate_limit_tier: Literal["free", "pro", "business", "enterprise"] | Unset = UNSET,
        agent_id: str | Unset | None = UNSET,
    ) -> models.ApiKey:
        """
        Change the name, scopes, limits or expiry of an API key. The change applies from the next request on.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            name: The purpose of the key.
            expires_at: Null: the key never expires.
            servers: Ids of tool servers; null: all.
            tools: server/tool patterns; null: all.
            orgs: Orgs whose memories the key can access; null: all.
            projects: Projects whose memories the key can access; null: all.
            tool_limits: Calls per minute, by server/tool pattern.
            scopes: For example brain:read, mcp:*, *:read or *.
            agent_id: The agent that the key is bound to; null: none, so it may name any agent.
        """
        return await self._session.send(Call(
            operation="update_api_key", method="PATCH", path=fill_path("/api/v1/api-keys/{key_id}", key_id=key_id), result=models.ApiKey,
            headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, expires_at=expires_at, servers=servers, tools=tools, orgs=orgs, projects=projects, tool_limits=tool_limits,
                scopes=scopes, rate_limit_tier=rate_limit_tier, agent_id=agent_id,
            ),
        ))

    async def get_api_key(self, key_id: str) -> models.ApiKey:
        """
        Return a key without its secret.

        Its ETag changes with its settings, not with `call_count`, `last_used_at`, `last_used_ip` and `status`.

        Requires the scope `keys:read`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
        """
        return await self._session.send(Call(
            operation="get_api_key", method="GET", path=fill_path("/api/v1/api-keys/{key_id}", key_id=key_id), result=models.ApiKey,
        ))

    async def delete_api_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> None:
        """
        Delete a key. It is rejected from the next request on.

        Requires the scope `keys:delete`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="delete_api_key", method="DELETE", path=fill_path("/api/v1/api-keys/{key_id}", key_id=key_id), result=type(None),
            headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    async def get_api_key_totals(
        self, *, since: date | str | Unset = UNSET, until: date | str | Unset = UNSET,
        by: Sequence[Literal["key", "day", "method", "route", "status"]] | Unset = UNSET,
        format: Literal["json", "csv"] | Unset = UNSET,
    ) -> models.Usage:
        """
        Return the number of calls by day, status and route. Calls of deleted keys are included.

        Requires the scope `keys:read`.

        Args:
            since: The first day, UTC.
            until: The last day, UTC.
            by: Fields to group by: key, day, method, route, status.
            format: By default json, or csv with `Accept: text/csv`.
        """
        return await self._session.send(Call(
            operation="get_api_key_totals", method="GET", path="/api/v1/api-keys/usage", result=models.Usage,
            query=given(since=since, until=until, by=by, format=format),
        ))

    async def get_api_key_totals_csv(
        self, *, since: date | str | Unset = UNSET, until: date | str | Unset = UNSET,
        by: Sequence[Literal["key", "day", "method", "route", "status"]] | Unset = UNSET,
        format: Literal["json", "csv"] | Unset = UNSET,
    ) -> str:
        """
        Return the number of calls by day, status and route. Calls of deleted keys are included.

        Requires the scope `keys:read`.

        Args:
            since: The first day, UTC.
            until: The last day, UTC.
            by: Fields to group by: key, day, method, route, status.
            format: By default json, or csv with `Accept: text/csv`.
        """
        return await self._session.send(Call(
            operation="get_api_key_totals", method="GET", path="/api/v1/api-keys/usage", result=str,
            query=given(since=since, until=until, by=by, format=format), reader="text", accept="text/csv",
        ))

    async def rotate_api_key(
        self, key_id: str, *, if_match: str | Unset = UNSET, grace_period_hours: int | Unset = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.ApiKeyWithSecret:
        """
        Create a successor with the same settings. Both keys work until the grace period ends, then the old one is deleted.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            grace_period_hours: Hours during which the old key still works. Default: `24`.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="rotate_api_key", method="POST", path=fill_path("/api/v1/api-keys/{key_id}/rotate", key_id=key_id),
            result=models.ApiKeyWithSecret, headers=given(**{"If-Match": if_match}), body=given(grace_period_hours=grace_period_hours),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def suspend_api_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> models.ApiKey:
        """
        Suspend a key: its requests are rejected until it is resumed.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="suspend_api_key", method="POST", path=fill_path("/api/v1/api-keys/{key_id}/suspend", key_id=key_id),
            result=models.ApiKey, headers=given(**{"If-Match": if_match}),
        ))

    async def resume_api_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> models.ApiKey:
        """
        End the suspension of a key.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="resume_api_key", method="POST", path=fill_path("/api/v1/api-keys/{key_id}/resume", key_id=key_id),
            result=models.ApiKey, headers=given(**{"If-Match": if_match}),
        ))

    async def list_api_key_calls(
        self, key_id: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET, status: int | Unset = UNSET,
        route: str | Unset = UNSET, format: Literal["json", "csv"] | Unset = UNSET,
    ) -> AsyncPage[models.Call]:
        """
        List the calls of a key, newest first. Calls of a deleted key appear in the totals only.

        Requires the scope `keys:read`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            since: Only calls at this time or later.
            until: Only calls before this time.
            status: Only calls with this status.
            route: The path's pattern, as in `route` of a call.
            format: CSV contains all matching calls instead of one page. `Accept: text/csv` asks for it too.
        """
        return await self._session.send_page(Call(
            operation="list_api_key_calls", method="GET", path=fill_path("/api/v1/api-keys/{key_id}/usage", key_id=key_id),
            result=PageBody[models.Call],
            query=given(cursor=cursor, page=page, per_page=per_page, since=since, until=until, status=status, route=route, format=format),
        ))

    async def list_api_key_calls_csv(
        self, key_id: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET, status: int | Unset = UNSET,
        route: str | Unset = UNSET, format: Literal["json", "csv"] | Unset = UNSET,
    ) -> str:
        """
        List the calls of a key, newest first. Calls of a deleted key appear in the totals only.

        Requires the scope `keys:read`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            since: Only calls at this time or later.
            until: Only calls before this time.
            status: Only calls with this status.
            route: The path's pattern, as in `route` of a call.
            format: CSV contains all matching calls instead of one page. `Accept: text/csv` asks for it too.
        """
        return await self._session.send(Call(
            operation="list_api_key_calls", method="GET", path=fill_path("/api/v1/api-keys/{key_id}/usage", key_id=key_id), result=str,
            query=given(cursor=cursor, page=page, per_page=per_page, since=since, until=until, status=status, route=route, format=format),
            reader="text", accept="text/csv",
        ))

    async def create_agent_key(
        self, *, name: str, servers: Sequence[str] | Unset | None = UNSET, tools: Sequence[str] | Unset | None = UNSET,
        orgs: Sequence[str] | Unset | None = UNSET, projects: Sequence[str] | Unset | None = UNSET,
        tool_limits: Mapping[str, int] | Unset = UNSET, permissions: Sequence[str] | Unset = UNSET,
        preset: Literal["agent", "reader", "planner", "notifier"] | Unset | None = UNSET, rate_limit: int | Unset = UNSET,
        expires_at: datetime | str | Unset | None = UNSET, agent_id: str | Unset | None = UNSET,
        ip_restriction: bool | Unset | None = UNSET, ip_list: Sequence[str] | Unset = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.AgentKeyWithSecret:
        """
        Create an agent key.

        `key` is returned only in this response. The caller must have every permission and limit that it gives to the key.

        Requires the scope `keys:write`.

        Args:
            name: The purpose of the key.
            servers: Ids of tool servers; null: all.
            tools: server/tool patterns; null: all.
            orgs: Orgs whose memories the key can access; null: all.
            projects: Projects whose memories the key can access; null: all.
            tool_limits: Calls per minute, by server/tool pattern.
            permissions: For example brain:read, mcp:*, *:read or *.
            preset: Permissions to add: those of agent, reader, planner or notifier.
            rate_limit: Requests per minute. Default: `600`.
            expires_at: Null: the key never expires.
            agent_id: Default: a slug of the name, unique in the workspace. It never changes.
            ip_restriction: Enforce the IP list. Default: true if the list has an entry. An enforced empty list blocks every request.
            ip_list: Addresses and CIDR ranges, IPv4 or IPv6.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="create_agent_key", method="POST", path="/api/v1/agent-keys", result=models.AgentKeyWithSecret,
            body=given(
                servers=servers, tools=tools, orgs=orgs, projects=projects, tool_limits=tool_limits, name=name, permissions=permissions,
                preset=preset, rate_limit=rate_limit, expires_at=expires_at, agent_id=agent_id, ip_restriction=ip_restriction,
                ip_list=ip_list,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def list_agent_keys(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        environment: Literal["live", "test"] | Unset = UNSET, status: Literal["Active", "Revoked", "Expired"] | Unset = UNSET,
        q: str | Unset = UNSET,
    ) -> AsyncPage[models.AgentKey]:
        """
        List the keys of the workspace, newest first. A test key sees test keys only.

        Requires the scope `keys:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            environment: Only live keys, or only test keys.
            status: Only keys in this state; a suspended one counts as Revoked.
            q: A part of the name.
        """
        return await self._session.send_page(Call(
            operation="list_agent_keys", method="GET", path="/api/v1/agent-keys", result=PageBody[models.AgentKey],
            query=given(cursor=cursor, page=page, per_page=per_page, environment=environment, status=status, q=q),
        ))

    async def update_agent_key(
        self, key_id: str, *, if_match: str | Unset = UNSET, name: str | Unset = UNSET,
        expires_at: datetime | str | Unset | None = UNSET, servers: Sequence[str] | Unset | None = UNSET,
        tools: Sequence[str] | Unset | None = UNSET, orgs: Sequence[str] | Unset | None = UNSET,
        projects: Sequence[str] | Unset | None = UNSET, tool_limits: Mapping[str, int] | Unset = UNSET,
        permissions: Sequence[str] | Unset = UNSET, rate_limit: int | Unset = UNSET, ip_restriction: bool | Unset = UNSET,
        ip_list: Sequence[str] | Unset = UNSET,
    ) -> models.AgentKey:
        """
        Change the name, limits or lists of an agent key. The change applies from the next request on; `agent_id` cannot change.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            name: The purpose of the key.
            expires_at: Null: the key never expires.
            servers: Ids of tool servers; null: all.
            tools: server/tool patterns; null: all.
            orgs: Orgs whose memories the key can access; null: all.
            projects: Projects whose memories the key can access; null: all.
            tool_limits: Calls per minute, by server/tool pattern.
            permissions: For example brain:read, mcp:*, *:read or *.
            rate_limit: Requests per minute.
            ip_restriction: Enforce the IP list. If omitted, setting a list with at least one entry enforces it.
            ip_list: Addresses and CIDR ranges, IPv4 or IPv6.
        """
        return await self._session.send(Call(
            operation="update_agent_key", method="PATCH", path=fill_path("/api/v1/agent-keys/{key_id}", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, expires_at=expires_at, servers=servers, tools=tools, orgs=orgs, projects=projects, tool_limits=tool_limits,
                permissions=permissions, rate_limit=rate_limit, ip_restriction=ip_restriction, ip_list=ip_list,
            ),
        ))

    async def get_agent_key(self, key_id: str) -> models.AgentKey:
        """
        Return a key without its secret.

        Its ETag changes with its settings, not with `call_count`, `last_used_at`, `last_used_ip` and `status`.

        Requires the scope `keys:read`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
        """
        return await self._session.send(Call(
            operation="get_agent_key", method="GET", path=fill_path("/api/v1/agent-keys/{key_id}", key_id=key_id), result=models.AgentKey,
        ))

    async def delete_agent_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> None:
        """
        Delete a key. It is rejected from the next request on.

        Requires the scope `keys:delete`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="delete_agent_key", method="DELETE", path=fill_path("/api/v1/agent-keys/{key_id}", key_id=key_id),
            result=type(None), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    async def revoke_agent_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> models.AgentKey:
        """
        Revoke a key for good. Its requests are rejected with `key_revoked` from then on. Revoking it again changes nothing.

        Requires the scope `keys:delete`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="revoke_agent_key", method="POST", path=fill_path("/api/v1/agent-keys/{key_id}/revoke", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
        ))

    async def extend_agent_key(
        self, key_id: str, *, expires_at: datetime | str | None, if_match: str | Unset = UNSET,
    ) -> models.AgentKey:
        """
        Replace the expiry, or remove it with null. An expired key becomes active again; a revoked one does not.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            expires_at: Null: the key never expires.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="extend_agent_key", method="POST", path=fill_path("/api/v1/agent-keys/{key_id}/extend", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}), body=given(expires_at=expires_at),
        ))

    async def get_agent_key_permissions(
        self, key_id: str, *, has: str | Unset = UNSET, any: Sequence[str] | Unset = UNSET, all: Sequence[str] | Unset = UNSET,
    ) -> models.Permissions:
        """
        Return the permissions of a key, and whether it has one, any or all of the permissions that the query names.

        The ETag is the key's.

        Requires the scope `keys:read`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            has: A permission: does the key have it?
            any: Permissions: does the key have any?
            all: Permissions: does the key have all?
        """
        return await self._session.send(Call(
            operation="get_agent_key_permissions", method="GET", path=fill_path("/api/v1/agent-keys/{key_id}/permissions", key_id=key_id),
            result=models.Permissions, query=given(has=has, any=any, all=all),
        ))

    async def replace_agent_key_permissions(
        self, key_id: str, *, permissions: Sequence[str], if_match: str | Unset = UNSET,
    ) -> models.AgentKey:
        """
        Replace all permissions of a key. The caller must have the old and the new ones.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            permissions: For example brain:read, mcp:*, *:read or *.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="replace_agent_key_permissions", method="PUT",
            path=fill_path("/api/v1/agent-keys/{key_id}/permissions", key_id=key_id), result=models.AgentKey,
            headers=given(**{"If-Match": if_match}), body=given(permissions=permissions),
        ))

    async def list_agent_key_ips(self, key_id: str) -> models.Addresses:
        """
        Return the addresses and CIDR ranges that the key may be used from, and whether the list is enforced.

        The ETag is the key's.

        Requires the scope `audit:read`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
        """
        return await self._session.send(Call(
            operation="list_agent_key_ips", method="GET", path=fill_path("/api/v1/agent-keys/{key_id}/ips", key_id=key_id),
            result=models.Addresses,
        ))

    async def replace_agent_key_ips(
        self, key_id: str, *, if_match: str | Unset = UNSET, ips: Sequence[str] | Unset | None = UNSET,
        text: str | Unset | None = UNSET, ip_restriction: bool | Unset | None = UNSET,
    ) -> models.AgentKey:
        """
        Replace the list of addresses and CIDR ranges that the key may be used from.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            ips: Addresses and CIDR ranges, IPv4 or IPv6.
            text: One entry per line. Lines that start with # are ignored.
            ip_restriction: Enforce the list. If omitted, setting or adding an address enforces the list; false stores it without
                enforcing it. An enforced empty list blocks every request.
        """
        return await self._session.send(Call(
            operation="replace_agent_key_ips", method="PUT", path=fill_path("/api/v1/agent-keys/{key_id}/ips", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
            body=given(ips=ips, text=text, ip_restriction=ip_restriction),
        ))

    async def add_agent_key_ips(
        self, key_id: str, *, if_match: str | Unset = UNSET, ips: Sequence[str] | Unset | None = UNSET,
        text: str | Unset | None = UNSET, ip_restriction: bool | Unset | None = UNSET,
    ) -> models.AgentKey:
        """
        Add addresses and CIDR ranges to the list that the key may be used from.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            ips: Addresses and CIDR ranges, IPv4 or IPv6.
            text: One entry per line. Lines that start with # are ignored.
            ip_restriction: Enforce the list. If omitted, setting or adding an address enforces the list; false stores it without
                enforcing it. An enforced empty list blocks every request.
        """
        return await self._session.send(Call(
            operation="add_agent_key_ips", method="POST", path=fill_path("/api/v1/agent-keys/{key_id}/ips", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
            body=given(ips=ips, text=text, ip_restriction=ip_restriction),
        ))

    async def remove_agent_key_ips(
        self, key_id: str, *, if_match: str | Unset = UNSET, ips: Sequence[str] | Unset | None = UNSET,
        text: str | Unset | None = UNSET, ip_restriction: bool | Unset | None = UNSET,
    ) -> models.AgentKey:
        """
        Remove addresses and CIDR ranges from the list. Entries that are not in the list are ignored.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            ips: Addresses and CIDR ranges, IPv4 or IPv6.
            text: One entry per line. Lines that start with # are ignored.
            ip_restriction: Enforce the list. If omitted, setting or adding an address enforces the list; false stores it without
                enforcing it. An enforced empty list blocks every request.
        """
        return await self._session.send(Call(
            operation="remove_agent_key_ips", method="DELETE", path=fill_path("/api/v1/agent-keys/{key_id}/ips", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
            body=given(ips=ips, text=text, ip_restriction=ip_restriction),
        ))

    async def get_agent_key_totals(
        self, *, since: date | str | Unset = UNSET, until: date | str | Unset = UNSET,
        by: Sequence[Literal["key", "day", "method", "route", "status"]] | Unset = UNSET,
        format: Literal["json", "csv"] | Unset = UNSET,
    ) -> models.Usage:
        """
        Return the number of calls by day, status and route. Calls of deleted keys are included.

        Requires the scope `keys:read`.

        Args:
            since: The first day, UTC.
            until: The last day, UTC.
            by: Fields to group by: key, day, method, route, status.
            format: By default json, or csv with `Accept: text/csv`.
        """
        return await self._session.send(Call(
            operation="get_agent_key_totals", method="GET", path="/api/v1/agent-keys/usage", result=models.Usage,
            query=given(since=since, until=until, by=by, format=format),
        ))

    async def get_agent_key_totals_csv(
        self, *, since: date | str | Unset = UNSET, until: date | str | Unset = UNSET,
        by: Sequence[Literal["key", "day", "method", "route", "status"]] | Unset = UNSET,
        format: Literal["json", "csv"] | Unset = UNSET,
    ) -> str:
        """
        Return the number of calls by day, status and route. Calls of deleted keys are included.

        Requires the scope `keys:read`.

        Args:
            since: The first day, UTC.
            until: The last day, UTC.
            by: Fields to group by: key, day, method, route, status.
            format: By default json, or csv with `Accept: text/csv`.
        """
        return await self._session.send(Call(
            operation="get_agent_key_totals", method="GET", path="/api/v1/agent-keys/usage", result=str,
            query=given(since=since, until=until, by=by, format=format), reader="text", accept="text/csv",
        ))

    async def rotate_agent_key(
        self, key_id: str, *, if_match: str | Unset = UNSET, grace_period_hours: int | Unset = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.AgentKeyWithSecret:
        """
        Create a successor with the same settings. Both keys work until the grace period ends, then the old one is deleted.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            grace_period_hours: Hours during which the old key still works. Default: `24`.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="rotate_agent_key", method="POST", path=fill_path("/api/v1/agent-keys/{key_id}/rotate", key_id=key_id),
            result=models.AgentKeyWithSecret, headers=given(**{"If-Match": if_match}), body=given(grace_period_hours=grace_period_hours),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def suspend_agent_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> models.AgentKey:
        """
        Suspend a key: its requests are rejected until it is resumed.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="suspend_agent_key", method="POST", path=fill_path("/api/v1/agent-keys/{key_id}/suspend", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
        ))

    async def resume_agent_key(self, key_id: str, *, if_match: str | Unset = UNSET) -> models.AgentKey:
        """
        End the suspension of a key.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="resume_agent_key", method="POST", path=fill_path("/api/v1/agent-keys/{key_id}/resume", key_id=key_id),
            result=models.AgentKey, headers=given(**{"If-Match": if_match}),
        ))

    async def list_agent_key_calls(
        self, key_id: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET, status: int | Unset = UNSET,
        route: str | Unset = UNSET, format: Literal["json", "csv"] | Unset = UNSET,
    ) -> AsyncPage[models.Call]:
        """
        List the calls of a key, newest first. Calls of a deleted key appear in the totals only.

        Requires the scope `keys:read`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            since: Only calls at this time or later.
            until: Only calls before this time.
            status: Only calls with this status.
            route: The path's pattern, as in `route` of a call.
            format: CSV contains all matching calls instead of one page. `Accept: text/csv` asks for it too.
        """
        return await self._session.send_page(Call(
            operation="list_agent_key_calls", method="GET", path=fill_path("/api/v1/agent-keys/{key_id}/usage", key_id=key_id),
            result=PageBody[models.Call],
            query=given(cursor=cursor, page=page, per_page=per_page, since=since, until=until, status=status, route=route, format=format),
        ))

    async def list_agent_key_calls_csv(
        self, key_id: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET, status: int | Unset = UNSET,
        route: str | Unset = UNSET, format: Literal["json", "csv"] | Unset = UNSET,
    ) -> str:
        """
        List the calls of a key, newest first. Calls of a deleted key appear in the totals only.

        Requires the scope `keys:read`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            since: Only calls at this time or later.
            until: Only calls before this time.
            status: Only calls with this status.
            route: The path's pattern, as in `route` of a call.
            format: CSV contains all matching calls instead of one page. `Accept: text/csv` asks for it too.
        """
        return await self._session.send(Call(
            operation="list_agent_key_calls", method="GET", path=fill_path("/api/v1/agent-keys/{key_id}/usage", key_id=key_id),
            result=str,
            query=given(cursor=cursor, page=page, per_page=per_page, since=since, until=until, status=status, route=route, format=format),
            reader="text", accept="text/csv",
        ))

    async def get_rate_limit(self) -> models.RateLimit:
        """
        Return the limit of the key that sends the request, how much of it is used, and when the window ends.

        Requires a key with any scope. Does not count against the key's rate limit.
        """
        return await self._session.send(Call(
            operation="get_rate_limit", method="GET", path="/api/v1/rate-limit", result=models.RateLimit,
        ))

    async def get_current_key(self) -> models.Who:
        """
        Return the key that sends the request and what it may do. Its IP list is included only with the scope `audit:read`.

        Requires a key with any scope. Does not count against the key's rate limit.
        """
        return await self._session.send(Call(operation="get_current_key", method="GET", path="/api/v1/whoami", result=models.Who))
