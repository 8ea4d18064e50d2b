"""The key of one client on one machine, with no more permissions than a coding agent needs (field notes B4.5)."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.access.errors import NameTaken
from rookery.access.key_fields import NewAgentKey
from rookery.access.operator import get_operator, resolve_workspace
from rookery.connect.errors import ServerUnusable
from rookery.connect.server_client import ServerClient
from rookery.kernel.secret import Secret

if TYPE_CHECKING:  # a command that creates no key starts faster without it
    from rookery.access.wiring import AccessServices

LEAST_PERMISSIONS = ("mcp:read", "mcp:write", "brain:read", "brain:write", "sessions.read", "sessions.write", "plans.read")
"""Permissions of a connected client: tools, memory, and the sessions and ready tasks that its hooks use."""

_MAX_AGENT_ID_CHARS = 64
_OTHER_CHARACTERS = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """The key to create. Its *agent_id* is unique in a workspace, so that a second run creates no second key."""

    name: str
    agent_id: str


def describe_key(client: str, host: str | None = None) -> KeyRequest:
    """Return the key of *client* on the machine *host*, by default this one."""
    host_name = host or socket.gethostname() or "this machine"
    slug = _OTHER_CHARACTERS.sub("-", f"{client}-{host_name}".lower())[:_MAX_AGENT_ID_CHARS].strip("-")
    return KeyRequest(f"{client} on {host_name}"[:100], slug)


async def create_locally(services: AccessServices, workspace: str | None, request: KeyRequest) -> Secret | None:
    """
    Create the key in the record store and return its secret, or None if it exists. The secret is stored nowhere.

    Raises:
        NotFound: There is no such workspace.
    """
    owner = await resolve_workspace(services, workspace)
    new = NewAgentKey(name=request.name, permissions=LEAST_PERMISSIONS, agent_id=request.agent_id)
    try:
        created = await services.agent_keys.create(owner.id, new, by=get_operator())
    except NameTaken:
        return None
    return created.plaintext


def create_over_http(server: ServerClient, request: KeyRequest) -> Secret | None:
    """
    Create the key by the key of *server* and return its secret, or None if it exists.

    Raises:
        ServerUnusable: The server cannot be reached, or its answer is no key. `key_lacks_scope`: the key may not create this one.
    """
    fields = {"name": request.name, "agent_id": request.agent_id, "permissions": list(LEAST_PERMISSIONS)}
    answer = server.post("/api/v1/agent-keys", fields)
    if answer.status == 409:
        return None
    if answer.status in {401, 403}:
        raise ServerUnusable("key_refused" if answer.status == 401 else "key_lacks_scope", answer.message)
    key = answer.fields.get("key")
    if answer.status != 201 or not isinstance(key, str):
        raise ServerUnusable("unexpected_answer", f"the key was not created: {answer.message}")
    return Secret(key)
