"""The author of a memory: the key that wrote it and, if known, the agent and the session."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Self, cast

import orjson

from rookery.access.models import Actor, ActorKind, Caller

_CACHED_AUTHORS = 4096
"""Decoded authors that stay in memory. Few authors write many memories, and a recall decodes two for each record that it reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """
    The author of a memory or of its last change.

    Attributes:
        kind: The kind of the key; `operator`: the command line; `system`: a timer.
        key_id: The id of the key; None without a key.
        name: The name that the key had then, or the operator's login.
        agent_id: The agent of the key, or the agent that the request named.
        session_id: The session that the request named.
    """

    kind: ActorKind
    key_id: str | None = None
    name: str = ""
    agent_id: str | None = None
    session_id: str | None = None

    @classmethod
    def from_actor(cls, actor: Actor, *, agent_id: str | None = None, session_id: str | None = None) -> Self:
        """Return the author for what *actor* writes."""
        return cls(kind=actor.kind, key_id=actor.id, name=actor.name, agent_id=agent_id, session_id=session_id)

    @classmethod
    def from_caller(cls, caller: Caller, *, agent_id: str | None = None, session_id: str | None = None) -> Self:
        """Return the author for what *caller* writes. The agent of the key takes precedence over *agent_id*."""
        return cls.from_actor(Actor.from_caller(caller), agent_id=caller.agent_id or agent_id, session_id=session_id)


def encode_author(author: Author) -> str:
    """Return *author* as its column holds it."""
    return orjson.dumps((author.kind, author.key_id, author.name, author.agent_id, author.session_id)).decode()


@lru_cache(maxsize=_CACHED_AUTHORS)
def decode_author(text: str) -> Author:
    """Return the author that `encode_author` encoded."""
    fields = cast("tuple[ActorKind, str | None, str, str | None, str | None]", orjson.loads(text))
    kind, key_id, name, agent_id, session_id = fields
    return Author(kind=kind, key_id=key_id, name=name, agent_id=agent_id, session_id=session_id)
