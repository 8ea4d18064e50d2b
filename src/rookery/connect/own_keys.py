"""The key of one client on one machine, or under one name, with no more permissions than a coding agent needs."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rookery.access.errors import NameTaken
from rookery.access.key_fields import NewAgentKey
from rookery.access.operator import get_operator, resolve_workspace
from rookery.coding_agents.projects import PROJECT_FILE, find_project, read_agent_name
from rookery.connect.errors import ServerUnusable
from rookery.connect.server_client import ServerClient
from rookery.kernel.secret import Secret

if TYPE_CHECKING:  # a command that creates no key starts faster without it
    from rookery.access.build import AccessServices

LEAST_PERMISSIONS = ("mcp:read", "mcp:write", "brain:read", "brain:write", "sessions.read", "sessions.write", "plans.read")
"""Permissions of a connected client: tools, memory, and the sessions and ready tasks that its hooks use."""

_MAX_AGENT_ID_CHARS = 64
_OTHER_CHARACTERS = re.compile(r"[^a-z0-9]+")
_RANDOM_HOST = re.compile(r"[0-9a-f]{12}|codespaces-[0-9a-f]{6}")
"""The names of hosts that Docker, Podman and Codespaces make up for each new container."""

_RANDOM_POD = re.compile(r"[a-z0-9.-]+-[a-z0-9]{5}")
"""The name of a pod of Kubernetes, which ends with a random part."""


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """
    The key to create. Its *agent_id* is unique in a workspace, so that a second run creates no second key.

    Attributes:
        notice: What the user should know about the name of the agent.
    """

    name: str
    agent_id: str
    notice: str | None = None


def describe_key(client: str, name: str | None, *, folder: Path, environ: Mapping[str, str]) -> KeyRequest:
    """
    Return the key of *client* under *name*.

    Without *name* it is that of `.rookery.toml` in *folder*, or else that of this machine. A container whose name is random has the name
    of the project in its place, because each new container would have another agent.

    Raises:
        OSError, ValueError: `.rookery.toml` or a file of Git cannot be read.
    """
    given_name = name or read_agent_name(folder)
    if given_name is not None:
        prefix = "" if given_name.lower().startswith(client) else f"{client}-"
        return KeyRequest(f"{client}: {given_name}"[:100], _to_agent_id(f"{prefix}{given_name}"))
    host = socket.gethostname() or "this machine"
    if not _is_random(host, environ):
        return KeyRequest(f"{client} on {host}"[:100], _to_agent_id(f"{client}-{host}"))
    project = find_project(folder)
    place = "container" if project is None else project.project
    agent_id = _to_agent_id(f"{client}-{place}")
    return KeyRequest(
        f"{client} in containers: {place}"[:100],
        agent_id,
        f"The name of this host, {host}, is random, so the agent is {agent_id}. To choose another name, use --name NAME, or write "
        f'agent = "NAME" to {PROJECT_FILE}.',
    )


def _to_agent_id(name: str) -> str:
    return _OTHER_CHARACTERS.sub("-", name.lower())[:_MAX_AGENT_ID_CHARS].strip("-")


def _is_random(host: str, environ: Mapping[str, str]) -> bool:
    return _RANDOM_HOST.fullmatch(host) is not None or ("KUBERNETES_SERVICE_HOST" in environ and _RANDOM_POD.fullmatch(host) is not None)


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
