"""
Operations of `client.memory`.

Written by `make client` from the declarations of the operations. Change those, not this file.
"""

# fmt: off

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal


from rookery_client.calls import UNSET, Call, Unset, fill_path, given
from rookery_client.generated import models
from rookery_client.pages import AsyncPage, Page, PageBody
from rookery_client.sessions import AsyncSession, Session


class MemoryOperations:
    """Operations of `client.memory`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def remember(
        self, *, content: str, type: str | Unset | None = UNSET, org: str | Unset | None = UNSET, project: str | Unset | None = UNSET,
        agent_id: str | Unset | None = UNSET, session_id: str | Unset | None = UNSET,
        memory_scope: Literal["project", "agent", "session", "shared"] | Unset | None = UNSET,
        tags: Sequence[str] | Unset | None = UNSET, metadata: Mapping[str, object] | Unset | None = UNSET,
        confidence: float | Unset | None = UNSET, source: str | Unset | None = UNSET, supersedes_id: str | Unset | None = UNSET,
        expires_in: float | Unset | None = UNSET, dedupe: bool | Unset | None = UNSET, wait_ms: int | Unset | None = UNSET,
    ) -> models.Remember:
        """Store a memory."""
        return self._session.send(Call(
            operation="remember", method="POST", path="/v1/brain/remember", result=models.Remember,
            body=given(
                content=content, type=type, org=org, project=project, agent_id=agent_id, session_id=session_id, memory_scope=memory_scope,
                tags=tags, metadata=metadata, confidence=confidence, source=source, supersedes_id=supersedes_id, expires_in=expires_in,
                dedupe=dedupe, wait_ms=wait_ms,
            ),
            accepts_key=True,
        ))

    def remember_batch(self, *, memories: Sequence[Mapping[str, object]], wait_ms: int | Unset | None = UNSET) -> models.Batch:
        """Store many memories."""
        return self._session.send(Call(
            operation="remember_batch", method="POST", path="/v1/brain/remember/batch", result=models.Batch,
            body=given(memories=memories, wait_ms=wait_ms), accepts_key=True,
        ))

    def recall(
        self, *, query: str, top_k: int | Unset | None = UNSET, org: str | Unset | None = UNSET, project: str | Unset | None = UNSET,
        agent_id: str | Unset | None = UNSET, session_id: str | Unset | None = UNSET,
        include_scopes: Sequence[Literal["project", "agent", "session", "shared"]] | Unset | None = UNSET,
        type: str | Unset | None = UNSET, tags: Sequence[str] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET, source: str | Unset | None = UNSET,
        since: datetime | str | Unset | None = UNSET, until: datetime | str | Unset | None = UNSET,
        min_confidence: float | Unset | None = UNSET, min_relevance: float | Unset | None = UNSET,
        keywords: Sequence[str] | Unset | None = UNSET, boost_keywords: float | Unset | None = UNSET,
        mode: Literal["semantic", "keyword", "hybrid"] | Unset | None = UNSET, explain: bool | Unset | None = UNSET,
        context: int | Unset | None = UNSET, max_tokens: int | Unset | None = UNSET,
    ) -> models.Recall:
        """Recall memories."""
        return self._session.send(Call(
            operation="recall", method="POST", path="/v1/brain/recall", result=models.Recall,
            body=given(
                query=query, top_k=top_k, org=org, project=project, agent_id=agent_id, session_id=session_id,
                include_scopes=include_scopes, type=type, tags=tags, metadata=metadata, source=source, since=since, until=until,
                min_confidence=min_confidence, min_relevance=min_relevance, keywords=keywords, boost_keywords=boost_keywords, mode=mode,
                explain=explain, context=context, max_tokens=max_tokens,
            ),
        ))

    def search_memories(
        self, *, q: str, org: str | Unset = UNSET, project: str | Unset = UNSET, agent_id: str | Unset = UNSET,
        session_id: str | Unset = UNSET, memory_scope: Literal["project", "agent", "session", "shared"] | Unset = UNSET,
        type: str | Unset = UNSET, tags: Sequence[str] | Unset = UNSET, metadata: Mapping[str, object] | Unset = UNSET,
        source: str | Unset = UNSET, since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET,
        min_confidence: float | Unset = UNSET, limit: int | Unset = UNSET, offset: int | Unset = UNSET,
    ) -> models.Search:
        """Search memories by words."""
        return self._session.send(Call(
            operation="search_memories", method="GET", path="/v1/brain/search", result=models.Search,
            query=given(
                org=org, project=project, agent_id=agent_id, session_id=session_id, memory_scope=memory_scope, type=type, tags=tags,
                metadata=metadata, source=source, since=since, until=until, min_confidence=min_confidence, q=q, limit=limit,
                offset=offset,
            ),
        ))

    def send_recall_feedback(
        self, recall_id: str, *, used: Sequence[str] | Unset | None = UNSET, ignored: Sequence[str] | Unset | None = UNSET,
    ) -> models.Feedback:
        """Send feedback on a recall."""
        return self._session.send(Call(
            operation="send_recall_feedback", method="POST", path=fill_path("/v1/brain/recall/{recall_id}/feedback", recall_id=recall_id),
            result=models.Feedback, body=given(used=used, ignored=ignored),
        ))

    def get_agent_context(
        self, agent_id: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, org: str | Unset = UNSET,
        project: str | Unset = UNSET, type: str | Unset = UNSET,
    ) -> Page[models.Memory]:
        """List an agent's own memories."""
        return self._session.send_page(Call(
            operation="get_agent_context", method="GET", path=fill_path("/v1/brain/agent/{agent_id}/context", agent_id=agent_id),
            result=PageBody[models.Memory], query=given(page=page, per_page=per_page, org=org, project=project, type=type),
        ))

    def get_agent_boot(
        self, agent_id: str, *, org: str | Unset = UNSET, project: str | Unset = UNSET, session_id: str | Unset = UNSET,
        max_memories: int | Unset = UNSET,
    ) -> models.MemoryBoot:
        """Load the memories that an agent starts with."""
        return self._session.send(Call(
            operation="get_agent_boot", method="GET", path=fill_path("/v1/brain/agent/{agent_id}/boot", agent_id=agent_id),
            result=models.MemoryBoot, query=given(org=org, project=project, session_id=session_id, max_memories=max_memories),
        ))

    def list_memories(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, org: str | Unset = UNSET, project: str | Unset = UNSET,
        agent_id: str | Unset = UNSET, session_id: str | Unset = UNSET,
        memory_scope: Literal["project", "agent", "session", "shared"] | Unset = UNSET, type: str | Unset = UNSET,
        tags: Sequence[str] | Unset = UNSET, metadata: Mapping[str, object] | Unset = UNSET, source: str | Unset = UNSET,
        since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET, min_confidence: float | Unset = UNSET,
        state: Literal["created", "pending_embed", "indexed", "stale", "failed", "archived", "deleted"] | Unset = UNSET,
    ) -> Page[models.Memory]:
        """List memories, newest first."""
        return self._session.send_page(Call(
            operation="list_memories", method="GET", path="/v1/brain/memories", result=PageBody[models.Memory],
            query=given(
                page=page, per_page=per_page, org=org, project=project, agent_id=agent_id, session_id=session_id,
                memory_scope=memory_scope, type=type, tags=tags, metadata=metadata, source=source, since=since, until=until,
                min_confidence=min_confidence, state=state,
            ),
        ))

    def list_tags(
        self, *, org: str | Unset = UNSET, project: str | Unset = UNSET, agent_id: str | Unset = UNSET,
        session_id: str | Unset = UNSET,
    ) -> models.Tags:
        """Count memories by tag."""
        return self._session.send(Call(
            operation="list_tags", method="GET", path="/v1/brain/tags", result=models.Tags,
            query=given(org=org, project=project, agent_id=agent_id, session_id=session_id),
        ))

    def list_scopes(
        self, *, org: str | Unset = UNSET, project: str | Unset = UNSET, agent_id: str | Unset = UNSET,
        session_id: str | Unset = UNSET,
    ) -> models.Scopes:
        """Count memories by org and project."""
        return self._session.send(Call(
            operation="list_scopes", method="GET", path="/v1/brain/scopes", result=models.Scopes,
            query=given(org=org, project=project, agent_id=agent_id, session_id=session_id),
        ))

    def get_memory_map(
        self, *, org: str | Unset = UNSET, project: str | Unset = UNSET, agent_id: str | Unset = UNSET,
        session_id: str | Unset = UNSET, memory_scope: Literal["project", "agent", "session", "shared"] | Unset = UNSET,
        type: str | Unset = UNSET, tags: Sequence[str] | Unset = UNSET, metadata: Mapping[str, object] | Unset = UNSET,
        source: str | Unset = UNSET, since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET,
        min_confidence: float | Unset = UNSET, by: Literal["project", "type"] | Unset = UNSET, limit: int | Unset = UNSET,
    ) -> models.MemoryMap:
        """Place memories on a map."""
        return self._session.send(Call(
            operation="get_memory_map", method="GET", path="/v1/brain/map", result=models.MemoryMap,
            query=given(
                org=org, project=project, agent_id=agent_id, session_id=session_id, memory_scope=memory_scope, type=type, tags=tags,
                metadata=metadata, source=source, since=since, until=until, min_confidence=min_confidence, by=by, limit=limit,
            ),
        ))

    def get_memory(self, memory_id: str) -> models.Memory:
        """Show a memory."""
        return self._session.send(Call(
            operation="get_memory", method="GET", path=fill_path("/v1/brain/memories/{memory_id}", memory_id=memory_id),
            result=models.Memory,
        ))

    def update_memory(
        self, memory_id: str, *, if_match: str | Unset = UNSET, content: str | Unset = UNSET, type: str | Unset = UNSET,
        org: str | Unset | None = UNSET, project: str | Unset | None = UNSET, tags: Sequence[str] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET, confidence: float | Unset = UNSET, source: str | Unset = UNSET,
        expires_in: float | Unset | None = UNSET,
    ) -> models.Memory:
        """Change a memory."""
        return self._session.send(Call(
            operation="update_memory", method="PATCH", path=fill_path("/v1/brain/memories/{memory_id}", memory_id=memory_id),
            result=models.Memory, headers=given(**{"If-Match": if_match}),
            body=given(
                content=content, type=type, org=org, project=project, tags=tags, metadata=metadata, confidence=confidence, source=source,
                expires_in=expires_in,
            ),
        ))

    def delete_memory(self, memory_id: str, *, if_match: str | Unset = UNSET) -> None:
        """Delete a memory."""
        return self._session.send(Call(
            operation="delete_memory", method="DELETE", path=fill_path("/v1/brain/memories/{memory_id}", memory_id=memory_id),
            result=type(None), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    def archive_memory(self, memory_id: str, *, if_match: str | Unset = UNSET) -> models.Memory:
        """Archive a memory."""
        return self._session.send(Call(
            operation="archive_memory", method="POST", path=fill_path("/v1/brain/memories/{memory_id}/archive", memory_id=memory_id),
            result=models.Memory, headers=given(**{"If-Match": if_match}),
        ))

    def restore_memory(self, memory_id: str, *, if_match: str | Unset = UNSET) -> models.Memory:
        """Restore an archived memory."""
        return self._session.send(Call(
            operation="restore_memory", method="POST", path=fill_path("/v1/brain/memories/{memory_id}/restore", memory_id=memory_id),
            result=models.Memory, headers=given(**{"If-Match": if_match}),
        ))

    def get_memory_history(
        self, memory_id: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> Page[models.MemoryVersion]:
        """Show what a memory replaced and what replaced it."""
        return self._session.send_page(Call(
            operation="get_memory_history", method="GET", path=fill_path("/v1/brain/memories/{memory_id}/history", memory_id=memory_id),
            result=PageBody[models.MemoryVersion], query=given(page=page, per_page=per_page),
        ))


class AsyncMemoryOperations:
    """Operations of `client.memory`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def remember(
        self, *, content: str, type: str | Unset | None = UNSET, org: str | Unset | None = UNSET, project: str | Unset | None = UNSET,
        agent_id: str | Unset | None = UNSET, session_id: str | Unset | None = UNSET,
        memory_scope: Literal["project", "agent", "session", "shared"] | Unset | None = UNSET,
        tags: Sequence[str] | Unset | None = UNSET, metadata: Mapping[str, object] | Unset | None = UNSET,
        confidence: float | Unset | None = UNSET, source: str | Unset | None = UNSET, supersedes_id: str | Unset | None = UNSET,
        expires_in: float | Unset | None = UNSET, dedupe: bool | Unset | None = UNSET, wait_ms: int | Unset | None = UNSET,
    ) -> models.Remember:
        """Store a memory."""
        return await self._session.send(Call(
            operation="remember", method="POST", path="/v1/brain/remember", result=models.Remember,
            body=given(
                content=content, type=type, org=org, project=project, agent_id=agent_id, session_id=session_id, memory_scope=memory_scope,
                tags=tags, metadata=metadata, confidence=confidence, source=source, supersedes_id=supersedes_id, expires_in=expires_in,
                dedupe=dedupe, wait_ms=wait_ms,
            ),
            accepts_key=True,
        ))

    async def remember_batch(self, *, memories: Sequence[Mapping[str, object]], wait_ms: int | Unset | None = UNSET) -> models.Batch:
        """Store many memories."""
        return await self._session.send(Call(
            operation="remember_batch", method="POST", path="/v1/brain/remember/batch", result=models.Batch,
            body=given(memories=memories, wait_ms=wait_ms), accepts_key=True,
        ))

    async def recall(
        self, *, query: str, top_k: int | Unset | None = UNSET, org: str | Unset | None = UNSET, project: str | Unset | None = UNSET,
        agent_id: str | Unset | None = UNSET, session_id: str | Unset | None = UNSET,
        include_scopes: Sequence[Literal["project", "agent", "session", "shared"]] | Unset | None = UNSET,
        type: str | Unset | None = UNSET, tags: Sequence[str] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET, source: str | Unset | None = UNSET,
        since: datetime | str | Unset | None = UNSET, until: datetime | str | Unset | None = UNSET,
        min_confidence: float | Unset | None = UNSET, min_relevance: float | Unset | None = UNSET,
        keywords: Sequence[str] | Unset | None = UNSET, boost_keywords: float | Unset | None = UNSET,
        mode: Literal["semantic", "keyword", "hybrid"] | Unset | None = UNSET, explain: bool | Unset | None = UNSET,
        context: int | Unset | None = UNSET, max_tokens: int | Unset | None = UNSET,
    ) -> models.Recall:
        """Recall memories."""
        return await self._session.send(Call(
            operation="recall", method="POST", path="/v1/brain/recall", result=models.Recall,
            body=given(
                query=query, top_k=top_k, org=org, project=project, agent_id=agent_id, session_id=session_id,
                include_scopes=include_scopes, type=type, tags=tags, metadata=metadata, source=source, since=since, until=until,
                min_confidence=min_confidence, min_relevance=min_relevance, keywords=keywords, boost_keywords=boost_keywords, mode=mode,
                explain=explain, context=context, max_tokens=max_tokens,
            ),
        ))

    async def search_memories(
        self, *, q: str, org: str | Unset = UNSET, project: str | Unset = UNSET, agent_id: str | Unset = UNSET,
        session_id: str | Unset = UNSET, memory_scope: Literal["project", "agent", "session", "shared"] | Unset = UNSET,
        type: str | Unset = UNSET, tags: Sequence[str] | Unset = UNSET, metadata: Mapping[str, object] | Unset = UNSET,
        source: str | Unset = UNSET, since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET,
        min_confidence: float | Unset = UNSET, limit: int | Unset = UNSET, offset: int | Unset = UNSET,
    ) -> models.Search:
        """Search memories by words."""
        return await self._session.send(Call(
            operation="search_memories", method="GET", path="/v1/brain/search", result=models.Search,
            query=given(
                org=org, project=project, agent_id=agent_id, session_id=session_id, memory_scope=memory_scope, type=type, tags=tags,
                metadata=metadata, source=source, since=since, until=until, min_confidence=min_confidence, q=q, limit=limit,
                offset=offset,
            ),
        ))

    async def send_recall_feedback(
        self, recall_id: str, *, used: Sequence[str] | Unset | None = UNSET, ignored: Sequence[str] | Unset | None = UNSET,
    ) -> models.Feedback:
        """Send feedback on a recall."""
        return await self._session.send(Call(
            operation="send_recall_feedback", method="POST", path=fill_path("/v1/brain/recall/{recall_id}/feedback", recall_id=recall_id),
            result=models.Feedback, body=given(used=used, ignored=ignored),
        ))

    async def get_agent_context(
        self, agent_id: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, org: str | Unset = UNSET,
        project: str | Unset = UNSET, type: str | Unset = UNSET,
    ) -> AsyncPage[models.Memory]:
        """List an agent's own memories."""
        return await self._session.send_page(Call(
            operation="get_agent_context", method="GET", path=fill_path("/v1/brain/agent/{agent_id}/context", agent_id=agent_id),
            result=PageBody[models.Memory], query=given(page=page, per_page=per_page, org=org, project=project, type=type),
        ))

    async def get_agent_boot(
        self, agent_id: str, *, org: str | Unset = UNSET, project: str | Unset = UNSET, session_id: str | Unset = UNSET,
        max_memories: int | Unset = UNSET,
    ) -> models.MemoryBoot:
        """Load the memories that an agent starts with."""
        return await self._session.send(Call(
            operation="get_agent_boot", method="GET", path=fill_path("/v1/brain/agent/{agent_id}/boot", agent_id=agent_id),
            result=models.MemoryBoot, query=given(org=org, project=project, session_id=session_id, max_memories=max_memories),
        ))

    async def list_memories(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, org: str | Unset = UNSET, project: str | Unset = UNSET,
        agent_id: str | Unset = UNSET, session_id: str | Unset = UNSET,
        memory_scope: Literal["project", "agent", "session", "shared"] | Unset = UNSET, type: str | Unset = UNSET,
        tags: Sequence[str] | Unset = UNSET, metadata: Mapping[str, object] | Unset = UNSET, source: str | Unset = UNSET,
        since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET, min_confidence: float | Unset = UNSET,
        state: Literal["created", "pending_embed", "indexed", "stale", "failed", "archived", "deleted"] | Unset = UNSET,
    ) -> AsyncPage[models.Memory]:
        """List memories, newest first."""
        return await self._session.send_page(Call(
            operation="list_memories", method="GET", path="/v1/brain/memories", result=PageBody[models.Memory],
            query=given(
                page=page, per_page=per_page, org=org, project=project, agent_id=agent_id, session_id=session_id,
                memory_scope=memory_scope, type=type, tags=tags, metadata=metadata, source=source, since=since, until=until,
                min_confidence=min_confidence, state=state,
            ),
        ))

    async def list_tags(
        self, *, org: str | Unset = UNSET, project: str | Unset = UNSET, agent_id: str | Unset = UNSET,
        session_id: str | Unset = UNSET,
    ) -> models.Tags:
        """Count memories by tag."""
        return await self._session.send(Call(
            operation="list_tags", method="GET", path="/v1/brain/tags", result=models.Tags,
            query=given(org=org, project=project, agent_id=agent_id, session_id=session_id),
        ))

    async def list_scopes(
        self, *, org: str | Unset = UNSET, project: str | Unset = UNSET, agent_id: str | Unset = UNSET,
        session_id: str | Unset = UNSET,
    ) -> models.Scopes:
        """Count memories by org and project."""
        return await self._session.send(Call(
            operation="list_scopes", method="GET", path="/v1/brain/scopes", result=models.Scopes,
            query=given(org=org, project=project, agent_id=agent_id, session_id=session_id),
        ))

    async def get_memory_map(
        self, *, org: str | Unset = UNSET, project: str | Unset = UNSET, agent_id: str | Unset = UNSET,
        session_id: str | Unset = UNSET, memory_scope: Literal["project", "agent", "session", "shared"] | Unset = UNSET,
        type: str | Unset = UNSET, tags: Sequence[str] | Unset = UNSET, metadata: Mapping[str, object] | Unset = UNSET,
        source: str | Unset = UNSET, since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET,
        min_confidence: float | Unset = UNSET, by: Literal["project", "type"] | Unset = UNSET, limit: int | Unset = UNSET,
    ) -> models.MemoryMap:
        """Place memories on a map."""
        return await self._session.send(Call(
            operation="get_memory_map", method="GET", path="/v1/brain/map", result=models.MemoryMap,
            query=given(
                org=org, project=project, agent_id=agent_id, session_id=session_id, memory_scope=memory_scope, type=type, tags=tags,
                metadata=metadata, source=source, since=since, until=until, min_confidence=min_confidence, by=by, limit=limit,
            ),
        ))

    async def get_memory(self, memory_id: str) -> models.Memory:
        """Show a memory."""
        return await self._session.send(Call(
            operation="get_memory", method="GET", path=fill_path("/v1/brain/memories/{memory_id}", memory_id=memory_id),
            result=models.Memory,
        ))

    async def update_memory(
        self, memory_id: str, *, if_match: str | Unset = UNSET, content: str | Unset = UNSET, type: str | Unset = UNSET,
        org: str | Unset | None = UNSET, project: str | Unset | None = UNSET, tags: Sequence[str] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET, confidence: float | Unset = UNSET, source: str | Unset = UNSET,
        expires_in: float | Unset | None = UNSET,
    ) -> models.Memory:
        """Change a memory."""
        return await self._session.send(Call(
            operation="update_memory", method="PATCH", path=fill_path("/v1/brain/memories/{memory_id}", memory_id=memory_id),
            result=models.Memory, headers=given(**{"If-Match": if_match}),
            body=given(
                content=content, type=type, org=org, project=project, tags=tags, metadata=metadata, confidence=confidence, source=source,
                expires_in=expires_in,
            ),
        ))

    async def delete_memory(self, memory_id: str, *, if_match: str | Unset = UNSET) -> None:
        """Delete a memory."""
        return await self._session.send(Call(
            operation="delete_memory", method="DELETE", path=fill_path("/v1/brain/memories/{memory_id}", memory_id=memory_id),
            result=type(None), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    async def archive_memory(self, memory_id: str, *, if_match: str | Unset = UNSET) -> models.Memory:
        """Archive a memory."""
        return await self._session.send(Call(
            operation="archive_memory", method="POST", path=fill_path("/v1/brain/memories/{memory_id}/archive", memory_id=memory_id),
            result=models.Memory, headers=given(**{"If-Match": if_match}),
        ))

    async def restore_memory(self, memory_id: str, *, if_match: str | Unset = UNSET) -> models.Memory:
        """Restore an archived memory."""
        return await self._session.send(Call(
            operation="restore_memory", method="POST", path=fill_path("/v1/brain/memories/{memory_id}/restore", memory_id=memory_id),
            result=models.Memory, headers=given(**{"If-Match": if_match}),
        ))

    async def get_memory_history(
        self, memory_id: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> AsyncPage[models.MemoryVersion]:
        """Show what a memory replaced and what replaced it."""
        return await self._session.send_page(Call(
            operation="get_memory_history", method="GET", path=fill_path("/v1/brain/memories/{memory_id}/history", memory_id=memory_id),
            result=PageBody[models.MemoryVersion], query=given(page=page, per_page=per_page),
        ))
