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
from rookery_client.generated import inputs, models
from rookery_client.pages import AsyncPage, Page, PageBody
from rookery_client.sessions import AsyncSession, Session


class MemoryOperations:
    """Operations of `client.memory`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def remember(
        self, *, content: str, x_session_id: str | Unset = UNSET, type: str | Unset | None = UNSET, org: str | Unset | None = UNSET,
        project: str | Unset | None = UNSET, tags: Sequence[str] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET, confidence: float | Unset | None = UNSET,
        source: str | Unset | None = UNSET, expires_in: float | Unset | None = UNSET, agent_id: str | Unset | None = UNSET,
        session_id: str | Unset | None = UNSET, memory_scope: Literal["project", "agent", "session", "shared"] | Unset | None = UNSET,
        supersedes_id: str | Unset | None = UNSET, dedupe: bool | Unset | None = UNSET, wait_ms: int | Unset | None = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Remember:
        """
        Store a memory. The response does not wait for indexing, which usually takes less than a second.

        Pass `wait_ms` to wait for it. With `dedupe`, a memory with the same content in the same space is returned with status 200 and
        `duplicate: true` instead of stored again.

        Requires the scope `brain:write`.

        Args:
            content: The text to remember.
            x_session_id: The agent session that the request belongs to.
            type: observation by default.
            org: The organisation namespace.
            project: The project within the org.
            tags: Converted to lower case; duplicates are removed.
            metadata: A JSON object of your own, stored and returned unchanged. At most 16 KiB and 64 keys. Recall and search do not
                read it, but can filter by it.
            confidence: The author's certainty, 0 to 1.
            source: The origin of the memory.
            expires_in: Hours until the memory expires and is deleted.
            agent_id: The agent that the memory belongs to; the key's own by default.
            session_id: The session that the memory belongs to.
            memory_scope: Visibility: the project, only the agent, the session, or the whole org (shared).
            supersedes_id: The id of a memory to replace; that memory is deleted.
            dedupe: Return an identical memory of the same space instead of storing another.
            wait_ms: Maximum milliseconds to wait for indexing before the response.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="remember", method="POST", path="/v1/brain/remember", result=models.Remember,
            headers=given(**{"X-Session-ID": x_session_id}),
            body=given(
                content=content, type=type, org=org, project=project, tags=tags, metadata=metadata, confidence=confidence, source=source,
                expires_in=expires_in, agent_id=agent_id, session_id=session_id, memory_scope=memory_scope, supersedes_id=supersedes_id,
                dedupe=dedupe, wait_ms=wait_ms,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    def remember_batch(
        self, *, memories: Sequence[inputs.RememberBody | Mapping[str, object]], wait_ms: int | Unset | None = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Batch:
        """
        Store up to 500 memories.

        Each memory is accepted or rejected on its own. `results` has one outcome per memory, in the order of the request.

        Requires the scope `brain:write`.

        Args:
            memories: Memories with the fields of the body of /remember.
            wait_ms: Maximum milliseconds to wait for indexing of all memories before the response.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="remember_batch", method="POST", path="/v1/brain/remember/batch", result=models.Batch,
            body=given(memories=memories, wait_ms=wait_ms), accepts_key=True, idempotency_key=idempotency_key,
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
        """
        Return the memories that match a question best, by meaning, by words, or by both. Use `recall_id` to send feedback.

        Requires the scope `brain:read`.

        Args:
            query: The question, in plain language.
            top_k: Maximum number of memories; 5 by default.
            org: The organisation namespace.
            project: The project within the org.
            agent_id: The agent that the memory belongs to; the key's own by default.
            session_id: The session that the memory belongs to.
            include_scopes: Only memories of these scopes.
            type: observation, context, decision, convention, architecture, procedure, fact, research, plan, bug, documentation,
                service, pattern, or your own: 1 to 64 lower-case letters, digits, `_` and `-`, the first one a letter. The type
                determines how fast confidence decays.
            tags: Only memories with all of these tags.
            metadata: Only memories whose metadata has all of these values at its top level. Values are compared as text: `42` and
                `"42"` are equal.
            source: The origin of the memory.
            since: Only memories created at or after this time.
            until: Only memories created before this time.
            min_confidence: Only memories with at least this effective confidence, 0 to 1.
            min_relevance: The minimum `relevance` of a memory: the probability that it answers the question.
            keywords: Words that raise the score of memories that contain them.
            boost_keywords: The increase for a memory that contains all keywords; 0.2 by default.
            mode: semantic: by meaning; keyword: by words; hybrid: by both, with the best results.
            explain: Explain each memory's rank, and what was dropped by which rule.
            context: Return this many memories stored before and after each one in its session.
            max_tokens: A token budget, filled in order of rank. Memories that do not fit are skipped.
        """
        return self._session.send(Call(
            operation="recall", method="POST", path="/v1/brain/recall", result=models.Recall,
            body=given(
                query=query, top_k=top_k, org=org, project=project, agent_id=agent_id, session_id=session_id,
                include_scopes=include_scopes, type=type, tags=tags, metadata=metadata, source=source, since=since, until=until,
                min_confidence=min_confidence, min_relevance=min_relevance, keywords=keywords, boost_keywords=boost_keywords, mode=mode,
                explain=explain, context=context, max_tokens=max_tokens,
            ),
            repeatable=True,
        ))

    def search_memories(
        self, *, q: str, cursor: str | Unset = UNSET, org: str | Unset = UNSET, project: str | Unset = UNSET,
        agent_id: str | Unset = UNSET, session_id: str | Unset = UNSET,
        memory_scope: Literal["project", "agent", "session", "shared"] | Unset = UNSET, type: str | Unset = UNSET,
        tags: Sequence[str] | Unset = UNSET, metadata: Mapping[str, object] | Unset = UNSET, source: str | Unset = UNSET,
        since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET, min_confidence: float | Unset = UNSET,
        limit: int | Unset = UNSET, offset: int | Unset = UNSET,
    ) -> models.Search:
        """
        Find memories by full-text search. Quote a phrase to find it as a whole; put a minus before a word to exclude it.

        Requires the scope `brain:read`.

        Args:
            q: Words, a "quoted phrase", -excluded.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            org: The organisation namespace.
            project: The project within the org.
            agent_id: The agent that the memory belongs to; the key's own by default.
            session_id: The session that the memory belongs to.
            memory_scope: Visibility: the project, only the agent, the session, or the whole org (shared).
            type: observation, context, decision, convention, architecture, procedure, fact, research, plan, bug, documentation,
                service, pattern, or your own: 1 to 64 lower-case letters, digits, `_` and `-`, the first one a letter. The type
                determines how fast confidence decays.
            tags: Only memories with all of these tags; repeat the field for several.
            metadata: Only memories whose metadata has all of these values at its top level. Values are compared as text: `42` and
                `"42"` are equal.
            source: The origin of the memory.
            since: Only memories created at or after this time.
            until: Only memories created before this time.
            min_confidence: Only memories with at least this effective confidence, 0 to 1.
            limit: Maximum number of hits.
            offset: The number of hits to skip.
        """
        return self._session.send(Call(
            operation="search_memories", method="GET", path="/v1/brain/search", result=models.Search,
            query=given(
                cursor=cursor, org=org, project=project, agent_id=agent_id, session_id=session_id, memory_scope=memory_scope, type=type,
                tags=tags, metadata=metadata, source=source, since=since, until=until, min_confidence=min_confidence, q=q, limit=limit,
                offset=offset,
            ),
        ))

    def send_recall_feedback(
        self, recall_id: str, *, used: Sequence[str] | Unset | None = UNSET, ignored: Sequence[str] | Unset | None = UNSET,
    ) -> models.Feedback:
        """
        Record which memories of a recall were used and which were ignored.

        Used memories gain confidence, ignored ones lose some. Sending the same feedback again changes nothing.

        Requires the scope `brain:write`.

        Args:
            recall_id: The id in the response of a recall.
            used: Memories that were useful; they gain confidence.
            ignored: Memories that were not used; they lose confidence.
        """
        return self._session.send(Call(
            operation="send_recall_feedback", method="POST", path=fill_path("/v1/brain/recall/{recall_id}/feedback", recall_id=recall_id),
            result=models.Feedback, body=given(used=used, ignored=ignored), repeatable=True,
        ))

    def list_recalls(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET, key_id: str | Unset = UNSET,
        agent_id: str | Unset = UNSET, session_id: str | Unset = UNSET, org: str | Unset = UNSET, project: str | Unset = UNSET,
        memory_id: str | Unset = UNSET, since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET,
    ) -> Page[models.LoggedRecall]:
        """
        List the recalls of the key; with `audit:read` also those of other keys, within the key's orgs, projects and agent.

        Requires the scope `brain:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            key_id: Only recalls of this key.
            agent_id: Only recalls for this agent.
            session_id: Only recalls in this session.
            org: Only recalls in this org.
            project: Only recalls in this project.
            memory_id: Only recalls that returned this memory.
            since: Only recalls at or after this time.
            until: Only recalls before this time.
        """
        return self._session.send_page(Call(
            operation="list_recalls", method="GET", path="/v1/brain/recalls", result=PageBody[models.LoggedRecall],
            query=given(
                cursor=cursor, page=page, per_page=per_page, key_id=key_id, agent_id=agent_id, session_id=session_id, org=org,
                project=project, memory_id=memory_id, since=since, until=until,
            ),
        ))

    def get_recall(self, recall_id: str) -> models.LoggedRecall:
        """
        Return one recall: the question, the filters, the returned memories with their ranks, and the feedback on them.

        Requires the scope `brain:read`.

        Args:
            recall_id: The id in the response of a recall.
        """
        return self._session.send(Call(
            operation="get_recall", method="GET", path=fill_path("/v1/brain/recalls/{recall_id}", recall_id=recall_id),
            result=models.LoggedRecall,
        ))

    def get_recall_explanation(self, recall_id: str, *, memory_id: str | Unset = UNSET) -> models.RecallReplay:
        """
        Repeat a recall now, as its key and within the rights of yours, with an explanation. It is not logged again.

        With `memory_id`, the response also says at which step that memory leaves the recall.

        Requires the scope `brain:read`.

        Args:
            recall_id: The id in the response of a recall.
            memory_id: Also say at which step this memory leaves the recall.
        """
        return self._session.send(Call(
            operation="get_recall_explanation", method="GET",
            path=fill_path("/v1/brain/recalls/{recall_id}/explain", recall_id=recall_id), result=models.RecallReplay,
            query=given(memory_id=memory_id),
        ))

    def get_agent_context(
        self, agent_id: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        org: str | Unset = UNSET, project: str | Unset = UNSET, type: str | Unset = UNSET,
    ) -> Page[models.Memory]:
        """
        List the memories of scope `agent` of one agent, the highest effective confidence first.

        Requires the scope `brain:read`.

        Args:
            agent_id: The id of an agent.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            org: The organisation namespace.
            project: The project within the org.
            type: observation, context, decision, convention, architecture, procedure, fact, research, plan, bug, documentation,
                service, pattern, or your own: 1 to 64 lower-case letters, digits, `_` and `-`, the first one a letter. The type
                determines how fast confidence decays.
        """
        return self._session.send_page(Call(
            operation="get_agent_context", method="GET", path=fill_path("/v1/brain/agent/{agent_id}/context", agent_id=agent_id),
            result=PageBody[models.Memory], query=given(cursor=cursor, page=page, per_page=per_page, org=org, project=project, type=type),
        ))

    def get_agent_boot(
        self, agent_id: str, *, org: str | Unset = UNSET, project: str | Unset = UNSET, session_id: str | Unset = UNSET,
        max_memories: int | Unset = UNSET,
    ) -> models.MemoryBoot:
        """
        Return at most `max_memories` memories: the agent's own, shared ones, recent ones of the project, and those of the session.

        Requires the scope `brain:read`.

        Args:
            agent_id: The id of an agent.
            org: The organisation namespace.
            project: The project within the org.
            session_id: The session that the memory belongs to.
            max_memories: Maximum number of memories of all scopes together.
        """
        return self._session.send(Call(
            operation="get_agent_boot", method="GET", path=fill_path("/v1/brain/agent/{agent_id}/boot", agent_id=agent_id),
            result=models.MemoryBoot, query=given(org=org, project=project, session_id=session_id, max_memories=max_memories),
        ))

    def list_memories(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET, org: str | Unset = UNSET,
        project: str | Unset = UNSET, agent_id: str | Unset = UNSET, session_id: str | Unset = UNSET,
        memory_scope: Literal["project", "agent", "session", "shared"] | Unset = UNSET, type: str | Unset = UNSET,
        tags: Sequence[str] | Unset = UNSET, metadata: Mapping[str, object] | Unset = UNSET, source: str | Unset = UNSET,
        since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET, min_confidence: float | Unset = UNSET,
        state: Literal["created", "pending_embed", "indexed", "stale", "failed", "archived", "deleted"] | Unset = UNSET,
    ) -> Page[models.Memory]:
        """
        List the memories that the key may see, filtered by their fields, newest first.

        Requires the scope `brain:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            org: The organisation namespace.
            project: The project within the org.
            agent_id: The agent that the memory belongs to; the key's own by default.
            session_id: The session that the memory belongs to.
            memory_scope: Visibility: the project, only the agent, the session, or the whole org (shared).
            type: observation, context, decision, convention, architecture, procedure, fact, research, plan, bug, documentation,
                service, pattern, or your own: 1 to 64 lower-case letters, digits, `_` and `-`, the first one a letter. The type
                determines how fast confidence decays.
            tags: Only memories with all of these tags; repeat the field for several.
            metadata: Only memories whose metadata has all of these values at its top level. Values are compared as text: `42` and
                `"42"` are equal.
            source: The origin of the memory.
            since: Only memories created at or after this time.
            until: Only memories created before this time.
            min_confidence: Only memories with at least this effective confidence, 0 to 1.
            state: Only memories in this state; by default all that are not archived.
        """
        return self._session.send_page(Call(
            operation="list_memories", method="GET", path="/v1/brain/memories", result=PageBody[models.Memory],
            query=given(
                cursor=cursor, page=page, per_page=per_page, org=org, project=project, agent_id=agent_id, session_id=session_id,
                memory_scope=memory_scope, type=type, tags=tags, metadata=metadata, source=source, since=since, until=until,
                min_confidence=min_confidence, state=state,
            ),
        ))

    def list_tags(
        self, *, org: str | Unset = UNSET, project: str | Unset = UNSET, agent_id: str | Unset = UNSET,
        session_id: str | Unset = UNSET,
    ) -> models.Tags:
        """
        List the tags of the memories that the key may see, the most frequent first.

        Requires the scope `brain:read`.

        Args:
            org: The organisation namespace.
            project: The project within the org.
            agent_id: The agent that the memory belongs to; the key's own by default.
            session_id: The session that the memory belongs to.
        """
        return self._session.send(Call(
            operation="list_tags", method="GET", path="/v1/brain/tags", result=models.Tags,
            query=given(org=org, project=project, agent_id=agent_id, session_id=session_id),
        ))

    def list_scopes(
        self, *, org: str | Unset = UNSET, project: str | Unset = UNSET, agent_id: str | Unset = UNSET,
        session_id: str | Unset = UNSET,
    ) -> models.Scopes:
        """
        List the orgs and projects of the memories that the key may see, with the number of memories in each.

        Requires the scope `brain:read`.

        Args:
            org: The organisation namespace.
            project: The project within the org.
            agent_id: The agent that the memory belongs to; the key's own by default.
            session_id: The session that the memory belongs to.
        """
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
        """
        Place the memories that the key may see on a plane, similar ones near each other, with clusters named by their words.

        At most 5,000 memories are placed. The first map of a large workspace takes some seconds.

        Requires the scope `brain:read`.

        Args:
            org: The organisation namespace.
            project: The project within the org.
            agent_id: The agent that the memory belongs to; the key's own by default.
            session_id: The session that the memory belongs to.
            memory_scope: Visibility: the project, only the agent, the session, or the whole org (shared).
            type: observation, context, decision, convention, architecture, procedure, fact, research, plan, bug, documentation,
                service, pattern, or your own: 1 to 64 lower-case letters, digits, `_` and `-`, the first one a letter. The type
                determines how fast confidence decays.
            tags: Only memories with all of these tags; repeat the field for several.
            metadata: Only memories whose metadata has all of these values at its top level. Values are compared as text: `42` and
                `"42"` are equal.
            source: The origin of the memory.
            since: Only memories created at or after this time.
            until: Only memories created before this time.
            min_confidence: Only memories with at least this effective confidence, 0 to 1.
            by: The field that groups the points, for their colour.
            limit: Maximum points; of more memories, a stratified sample is placed.
        """
        return self._session.send(Call(
            operation="get_memory_map", method="GET", path="/v1/brain/map", result=models.MemoryMap,
            query=given(
                org=org, project=project, agent_id=agent_id, session_id=session_id, memory_scope=memory_scope, type=type, tags=tags,
                metadata=metadata, source=source, since=since, until=until, min_confidence=min_confidence, by=by, limit=limit,
            ),
        ))

    def get_memory(self, memory_id: str) -> models.Memory:
        """
        Return one memory, also if it is archived.

        Its ETag changes with each write and with feedback. It does not change with recall, indexing or `effective_confidence`.

        Requires the scope `brain:read`.

        Args:
            memory_id: The id of a memory.
        """
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
        """
        Change fields of a memory and index it again. Fields that are left out keep their value.

        Requires the scope `brain:write`.

        Args:
            memory_id: The id of a memory.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            content: The text to remember.
            type: observation, context, decision, convention, architecture, procedure, fact, research, plan, bug, documentation,
                service, pattern, or your own: 1 to 64 lower-case letters, digits, `_` and `-`, the first one a letter. The type
                determines how fast confidence decays.
            org: The organisation namespace.
            project: The project within the org.
            tags: Converted to lower case; duplicates are removed.
            metadata: A JSON object of your own, stored and returned unchanged. At most 16 KiB and 64 keys. Recall and search do not
                read it, but can filter by it.
            confidence: The author's certainty, 0 to 1.
            source: The origin of the memory.
            expires_in: Hours until the memory expires and is deleted.
        """
        return self._session.send(Call(
            operation="update_memory", method="PATCH", path=fill_path("/v1/brain/memories/{memory_id}", memory_id=memory_id),
            result=models.Memory, headers=given(**{"If-Match": if_match}),
            body=given(
                content=content, type=type, org=org, project=project, tags=tags, metadata=metadata, confidence=confidence, source=source,
                expires_in=expires_in,
            ),
        ))

    def delete_memory(self, memory_id: str, *, if_match: str | Unset = UNSET) -> None:
        """
        Delete a memory from the store and from the indexes. This cannot be undone; use archive to keep it for audit.

        Requires the scope `brain:delete`.

        Args:
            memory_id: The id of a memory.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="delete_memory", method="DELETE", path=fill_path("/v1/brain/memories/{memory_id}", memory_id=memory_id),
            result=type(None), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    def archive_memory(self, memory_id: str, *, if_match: str | Unset = UNSET) -> models.Memory:
        """
        Remove a memory from recall and search, and keep it for audit.

        Requires the scope `brain:delete`.

        Args:
            memory_id: The id of a memory.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="archive_memory", method="POST", path=fill_path("/v1/brain/memories/{memory_id}/archive", memory_id=memory_id),
            result=models.Memory, headers=given(**{"If-Match": if_match}),
        ))

    def restore_memory(self, memory_id: str, *, if_match: str | Unset = UNSET) -> models.Memory:
        """
        Return an archived memory to recall and search.

        Requires the scope `brain:delete`.

        Args:
            memory_id: The id of a memory.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="restore_memory", method="POST", path=fill_path("/v1/brain/memories/{memory_id}/restore", memory_id=memory_id),
            result=models.Memory, headers=given(**{"If-Match": if_match}),
        ))

    def get_memory_history(
        self, memory_id: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> Page[models.MemoryVersion]:
        """
        List the versions of a memory, oldest first: the memories that it superseded, and those that superseded it.

        Requires the scope `brain:read`.

        Args:
            memory_id: The id of a memory.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
        """
        return self._session.send_page(Call(
            operation="get_memory_history", method="GET", path=fill_path("/v1/brain/memories/{memory_id}/history", memory_id=memory_id),
            result=PageBody[models.MemoryVersion], query=given(cursor=cursor, page=page, per_page=per_page),
        ))


class AsyncMemoryOperations:
    """Operations of `client.memory`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def remember(
        self, *, content: str, x_session_id: str | Unset = UNSET, type: str | Unset | None = UNSET, org: str | Unset | None = UNSET,
        project: str | Unset | None = UNSET, tags: Sequence[str] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET, confidence: float | Unset | None = UNSET,
        source: str | Unset | None = UNSET, expires_in: float | Unset | None = UNSET, agent_id: str | Unset | None = UNSET,
        session_id: str | Unset | None = UNSET, memory_scope: Literal["project", "agent", "session", "shared"] | Unset | None = UNSET,
        supersedes_id: str | Unset | None = UNSET, dedupe: bool | Unset | None = UNSET, wait_ms: int | Unset | None = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Remember:
        """
        Store a memory. The response does not wait for indexing, which usually takes less than a second.

        Pass `wait_ms` to wait for it. With `dedupe`, a memory with the same content in the same space is returned with status 200 and
        `duplicate: true` instead of stored again.

        Requires the scope `brain:write`.

        Args:
            content: The text to remember.
            x_session_id: The agent session that the request belongs to.
            type: observation by default.
            org: The organisation namespace.
            project: The project within the org.
            tags: Converted to lower case; duplicates are removed.
            metadata: A JSON object of your own, stored and returned unchanged. At most 16 KiB and 64 keys. Recall and search do not
                read it, but can filter by it.
            confidence: The author's certainty, 0 to 1.
            source: The origin of the memory.
            expires_in: Hours until the memory expires and is deleted.
            agent_id: The agent that the memory belongs to; the key's own by default.
            session_id: The session that the memory belongs to.
            memory_scope: Visibility: the project, only the agent, the session, or the whole org (shared).
            supersedes_id: The id of a memory to replace; that memory is deleted.
            dedupe: Return an identical memory of the same space instead of storing another.
            wait_ms: Maximum milliseconds to wait for indexing before the response.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="remember", method="POST", path="/v1/brain/remember", result=models.Remember,
            headers=given(**{"X-Session-ID": x_session_id}),
            body=given(
                content=content, type=type, org=org, project=project, tags=tags, metadata=metadata, confidence=confidence, source=source,
                expires_in=expires_in, agent_id=agent_id, session_id=session_id, memory_scope=memory_scope, supersedes_id=supersedes_id,
                dedupe=dedupe, wait_ms=wait_ms,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def remember_batch(
        self, *, memories: Sequence[inputs.RememberBody | Mapping[str, object]], wait_ms: int | Unset | None = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Batch:
        """
        Store up to 500 memories.

        Each memory is accepted or rejected on its own. `results` has one outcome per memory, in the order of the request.

        Requires the scope `brain:write`.

        Args:
            memories: Memories with the fields of the body of /remember.
            wait_ms: Maximum milliseconds to wait for indexing of all memories before the response.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="remember_batch", method="POST", path="/v1/brain/remember/batch", result=models.Batch,
            body=given(memories=memories, wait_ms=wait_ms), accepts_key=True, idempotency_key=idempotency_key,
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
        """
        Return the memories that match a question best, by meaning, by words, or by both. Use `recall_id` to send feedback.

        Requires the scope `brain:read`.

        Args:
            query: The question, in plain language.
            top_k: Maximum number of memories; 5 by default.
            org: The organisation namespace.
            project: The project within the org.
            agent_id: The agent that the memory belongs to; the key's own by default.
            session_id: The session that the memory belongs to.
            include_scopes: Only memories of these scopes.
            type: observation, context, decision, convention, architecture, procedure, fact, research, plan, bug, documentation,
                service, pattern, or your own: 1 to 64 lower-case letters, digits, `_` and `-`, the first one a letter. The type
                determines how fast confidence decays.
            tags: Only memories with all of these tags.
            metadata: Only memories whose metadata has all of these values at its top level. Values are compared as text: `42` and
                `"42"` are equal.
            source: The origin of the memory.
            since: Only memories created at or after this time.
            until: Only memories created before this time.
            min_confidence: Only memories with at least this effective confidence, 0 to 1.
            min_relevance: The minimum `relevance` of a memory: the probability that it answers the question.
            keywords: Words that raise the score of memories that contain them.
            boost_keywords: The increase for a memory that contains all keywords; 0.2 by default.
            mode: semantic: by meaning; keyword: by words; hybrid: by both, with the best results.
            explain: Explain each memory's rank, and what was dropped by which rule.
            context: Return this many memories stored before and after each one in its session.
            max_tokens: A token budget, filled in order of rank. Memories that do not fit are skipped.
        """
        return await self._session.send(Call(
            operation="recall", method="POST", path="/v1/brain/recall", result=models.Recall,
            body=given(
                query=query, top_k=top_k, org=org, project=project, agent_id=agent_id, session_id=session_id,
                include_scopes=include_scopes, type=type, tags=tags, metadata=metadata, source=source, since=since, until=until,
                min_confidence=min_confidence, min_relevance=min_relevance, keywords=keywords, boost_keywords=boost_keywords, mode=mode,
                explain=explain, context=context, max_tokens=max_tokens,
            ),
            repeatable=True,
        ))

    async def search_memories(
        self, *, q: str, cursor: str | Unset = UNSET, org: str | Unset = UNSET, project: str | Unset = UNSET,
        agent_id: str | Unset = UNSET, session_id: str | Unset = UNSET,
        memory_scope: Literal["project", "agent", "session", "shared"] | Unset = UNSET, type: str | Unset = UNSET,
        tags: Sequence[str] | Unset = UNSET, metadata: Mapping[str, object] | Unset = UNSET, source: str | Unset = UNSET,
        since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET, min_confidence: float | Unset = UNSET,
        limit: int | Unset = UNSET, offset: int | Unset = UNSET,
    ) -> models.Search:
        """
        Find memories by full-text search. Quote a phrase to find it as a whole; put a minus before a word to exclude it.

        Requires the scope `brain:read`.

        Args:
            q: Words, a "quoted phrase", -excluded.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            org: The organisation namespace.
            project: The project within the org.
            agent_id: The agent that the memory belongs to; the key's own by default.
            session_id: The session that the memory belongs to.
            memory_scope: Visibility: the project, only the agent, the session, or the whole org (shared).
            type: observation, context, decision, convention, architecture, procedure, fact, research, plan, bug, documentation,
                service, pattern, or your own: 1 to 64 lower-case letters, digits, `_` and `-`, the first one a letter. The type
                determines how fast confidence decays.
            tags: Only memories with all of these tags; repeat the field for several.
            metadata: Only memories whose metadata has all of these values at its top level. Values are compared as text: `42` and
                `"42"` are equal.
            source: The origin of the memory.
            since: Only memories created at or after this time.
            until: Only memories created before this time.
            min_confidence: Only memories with at least this effective confidence, 0 to 1.
            limit: Maximum number of hits.
            offset: The number of hits to skip.
        """
        return await self._session.send(Call(
            operation="search_memories", method="GET", path="/v1/brain/search", result=models.Search,
            query=given(
                cursor=cursor, org=org, project=project, agent_id=agent_id, session_id=session_id, memory_scope=memory_scope, type=type,
                tags=tags, metadata=metadata, source=source, since=since, until=until, min_confidence=min_confidence, q=q, limit=limit,
                offset=offset,
            ),
        ))

    async def send_recall_feedback(
        self, recall_id: str, *, used: Sequence[str] | Unset | None = UNSET, ignored: Sequence[str] | Unset | None = UNSET,
    ) -> models.Feedback:
        """
        Record which memories of a recall were used and which were ignored.

        Used memories gain confidence, ignored ones lose some. Sending the same feedback again changes nothing.

        Requires the scope `brain:write`.

        Args:
            recall_id: The id in the response of a recall.
            used: Memories that were useful; they gain confidence.
            ignored: Memories that were not used; they lose confidence.
        """
        return await self._session.send(Call(
            operation="send_recall_feedback", method="POST", path=fill_path("/v1/brain/recall/{recall_id}/feedback", recall_id=recall_id),
            result=models.Feedback, body=given(used=used, ignored=ignored), repeatable=True,
        ))

    async def list_recalls(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET, key_id: str | Unset = UNSET,
        agent_id: str | Unset = UNSET, session_id: str | Unset = UNSET, org: str | Unset = UNSET, project: str | Unset = UNSET,
        memory_id: str | Unset = UNSET, since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET,
    ) -> AsyncPage[models.LoggedRecall]:
        """
        List the recalls of the key; with `audit:read` also those of other keys, within the key's orgs, projects and agent.

        Requires the scope `brain:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            key_id: Only recalls of this key.
            agent_id: Only recalls for this agent.
            session_id: Only recalls in this session.
            org: Only recalls in this org.
            project: Only recalls in this project.
            memory_id: Only recalls that returned this memory.
            since: Only recalls at or after this time.
            until: Only recalls before this time.
        """
        return await self._session.send_page(Call(
            operation="list_recalls", method="GET", path="/v1/brain/recalls", result=PageBody[models.LoggedRecall],
            query=given(
                cursor=cursor, page=page, per_page=per_page, key_id=key_id, agent_id=agent_id, session_id=session_id, org=org,
                project=project, memory_id=memory_id, since=since, until=until,
            ),
        ))

    async def get_recall(self, recall_id: str) -> models.LoggedRecall:
        """
        Return one recall: the question, the filters, the returned memories with their ranks, and the feedback on them.

        Requires the scope `brain:read`.

        Args:
            recall_id: The id in the response of a recall.
        """
        return await self._session.send(Call(
            operation="get_recall", method="GET", path=fill_path("/v1/brain/recalls/{recall_id}", recall_id=recall_id),
            result=models.LoggedRecall,
        ))

    async def get_recall_explanation(self, recall_id: str, *, memory_id: str | Unset = UNSET) -> models.RecallReplay:
        """
        Repeat a recall now, as its key and within the rights of yours, with an explanation. It is not logged again.

        With `memory_id`, the response also says at which step that memory leaves the recall.

        Requires the scope `brain:read`.

        Args:
            recall_id: The id in the response of a recall.
            memory_id: Also say at which step this memory leaves the recall.
        """
        return await self._session.send(Call(
            operation="get_recall_explanation", method="GET",
            path=fill_path("/v1/brain/recalls/{recall_id}/explain", recall_id=recall_id), result=models.RecallReplay,
            query=given(memory_id=memory_id),
        ))

    async def get_agent_context(
        self, agent_id: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        org: str | Unset = UNSET, project: str | Unset = UNSET, type: str | Unset = UNSET,
    ) -> AsyncPage[models.Memory]:
        """
        List the memories of scope `agent` of one agent, the highest effective confidence first.

        Requires the scope `brain:read`.

        Args:
            agent_id: The id of an agent.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            org: The organisation namespace.
            project: The project within the org.
            type: observation, context, decision, convention, architecture, procedure, fact, research, plan, bug, documentation,
                service, pattern, or your own: 1 to 64 lower-case letters, digits, `_` and `-`, the first one a letter. The type
                determines how fast confidence decays.
        """
        return await self._session.send_page(Call(
            operation="get_agent_context", method="GET", path=fill_path("/v1/brain/agent/{agent_id}/context", agent_id=agent_id),
            result=PageBody[models.Memory], query=given(cursor=cursor, page=page, per_page=per_page, org=org, project=project, type=type),
        ))

    async def get_agent_boot(
        self, agent_id: str, *, org: str | Unset = UNSET, project: str | Unset = UNSET, session_id: str | Unset = UNSET,
        max_memories: int | Unset = UNSET,
    ) -> models.MemoryBoot:
        """
        Return at most `max_memories` memories: the agent's own, shared ones, recent ones of the project, and those of the session.

        Requires the scope `brain:read`.

        Args:
            agent_id: The id of an agent.
            org: The organisation namespace.
            project: The project within the org.
            session_id: The session that the memory belongs to.
            max_memories: Maximum number of memories of all scopes together.
        """
        return await self._session.send(Call(
            operation="get_agent_boot", method="GET", path=fill_path("/v1/brain/agent/{agent_id}/boot", agent_id=agent_id),
            result=models.MemoryBoot, query=given(org=org, project=project, session_id=session_id, max_memories=max_memories),
        ))

    async def list_memories(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET, org: str | Unset = UNSET,
        project: str | Unset = UNSET, agent_id: str | Unset = UNSET, session_id: str | Unset = UNSET,
        memory_scope: Literal["project", "agent", "session", "shared"] | Unset = UNSET, type: str | Unset = UNSET,
        tags: Sequence[str] | Unset = UNSET, metadata: Mapping[str, object] | Unset = UNSET, source: str | Unset = UNSET,
        since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET, min_confidence: float | Unset = UNSET,
        state: Literal["created", "pending_embed", "indexed", "stale", "failed", "archived", "deleted"] | Unset = UNSET,
    ) -> AsyncPage[models.Memory]:
        """
        List the memories that the key may see, filtered by their fields, newest first.

        Requires the scope `brain:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            org: The organisation namespace.
            project: The project within the org.
            agent_id: The agent that the memory belongs to; the key's own by default.
            session_id: The session that the memory belongs to.
            memory_scope: Visibility: the project, only the agent, the session, or the whole org (shared).
            type: observation, context, decision, convention, architecture, procedure, fact, research, plan, bug, documentation,
                service, pattern, or your own: 1 to 64 lower-case letters, digits, `_` and `-`, the first one a letter. The type
                determines how fast confidence decays.
            tags: Only memories with all of these tags; repeat the field for several.
            metadata: Only memories whose metadata has all of these values at its top level. Values are compared as text: `42` and
                `"42"` are equal.
            source: The origin of the memory.
            since: Only memories created at or after this time.
            until: Only memories created before this time.
            min_confidence: Only memories with at least this effective confidence, 0 to 1.
            state: Only memories in this state; by default all that are not archived.
        """
        return await self._session.send_page(Call(
            operation="list_memories", method="GET", path="/v1/brain/memories", result=PageBody[models.Memory],
            query=given(
                cursor=cursor, page=page, per_page=per_page, org=org, project=project, agent_id=agent_id, session_id=session_id,
                memory_scope=memory_scope, type=type, tags=tags, metadata=metadata, source=source, since=since, until=until,
                min_confidence=min_confidence, state=state,
            ),
        ))

    async def list_tags(
        self, *, org: str | Unset = UNSET, project: str | Unset = UNSET, agent_id: str | Unset = UNSET,
        session_id: str | Unset = UNSET,
    ) -> models.Tags:
        """
        List the tags of the memories that the key may see, the most frequent first.

        Requires the scope `brain:read`.

        Args:
            org: The organisation namespace.
            project: The project within the org.
            agent_id: The agent that the memory belongs to; the key's own by default.
            session_id: The session that the memory belongs to.
        """
        return await self._session.send(Call(
            operation="list_tags", method="GET", path="/v1/brain/tags", result=models.Tags,
            query=given(org=org, project=project, agent_id=agent_id, session_id=session_id),
        ))

    async def list_scopes(
        self, *, org: str | Unset = UNSET, project: str | Unset = UNSET, agent_id: str | Unset = UNSET,
        session_id: str | Unset = UNSET,
    ) -> models.Scopes:
        """
        List the orgs and projects of the memories that the key may see, with the number of memories in each.

        Requires the scope `brain:read`.

        Args:
            org: The organisation namespace.
            project: The project within the org.
            agent_id: The agent that the memory belongs to; the key's own by default.
            session_id: The session that the memory belongs to.
        """
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
        """
        Place the memories that the key may see on a plane, similar ones near each other, with clusters named by their words.

        At most 5,000 memories are placed. The first map of a large workspace takes some seconds.

        Requires the scope `brain:read`.

        Args:
            org: The organisation namespace.
            project: The project within the org.
            agent_id: The agent that the memory belongs to; the key's own by default.
            session_id: The session that the memory belongs to.
            memory_scope: Visibility: the project, only the agent, the session, or the whole org (shared).
            type: observation, context, decision, convention, architecture, procedure, fact, research, plan, bug, documentation,
                service, pattern, or your own: 1 to 64 lower-case letters, digits, `_` and `-`, the first one a letter. The type
                determines how fast confidence decays.
            tags: Only memories with all of these tags; repeat the field for several.
            metadata: Only memories whose metadata has all of these values at its top level. Values are compared as text: `42` and
                `"42"` are equal.
            source: The origin of the memory.
            since: Only memories created at or after this time.
            until: Only memories created before this time.
            min_confidence: Only memories with at least this effective confidence, 0 to 1.
            by: The field that groups the points, for their colour.
            limit: Maximum points; of more memories, a stratified sample is placed.
        """
        return await self._session.send(Call(
            operation="get_memory_map", method="GET", path="/v1/brain/map", result=models.MemoryMap,
            query=given(
                org=org, project=project, agent_id=agent_id, session_id=session_id, memory_scope=memory_scope, type=type, tags=tags,
                metadata=metadata, source=source, since=since, until=until, min_confidence=min_confidence, by=by, limit=limit,
            ),
        ))

    async def get_memory(self, memory_id: str) -> models.Memory:
        """
        Return one memory, also if it is archived.

        Its ETag changes with each write and with feedback. It does not change with recall, indexing or `effective_confidence`.

        Requires the scope `brain:read`.

        Args:
            memory_id: The id of a memory.
        """
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
        """
        Change fields of a memory and index it again. Fields that are left out keep their value.

        Requires the scope `brain:write`.

        Args:
            memory_id: The id of a memory.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            content: The text to remember.
            type: observation, context, decision, convention, architecture, procedure, fact, research, plan, bug, documentation,
                service, pattern, or your own: 1 to 64 lower-case letters, digits, `_` and `-`, the first one a letter. The type
                determines how fast confidence decays.
            org: The organisation namespace.
            project: The project within the org.
            tags: Converted to lower case; duplicates are removed.
            metadata: A JSON object of your own, stored and returned unchanged. At most 16 KiB and 64 keys. Recall and search do not
                read it, but can filter by it.
            confidence: The author's certainty, 0 to 1.
            source: The origin of the memory.
            expires_in: Hours until the memory expires and is deleted.
        """
        return await self._session.send(Call(
            operation="update_memory", method="PATCH", path=fill_path("/v1/brain/memories/{memory_id}", memory_id=memory_id),
            result=models.Memory, headers=given(**{"If-Match": if_match}),
            body=given(
                content=content, type=type, org=org, project=project, tags=tags, metadata=metadata, confidence=confidence, source=source,
                expires_in=expires_in,
            ),
        ))

    async def delete_memory(self, memory_id: str, *, if_match: str | Unset = UNSET) -> None:
        """
        Delete a memory from the store and from the indexes. This cannot be undone; use archive to keep it for audit.

        Requires the scope `brain:delete`.

        Args:
            memory_id: The id of a memory.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="delete_memory", method="DELETE", path=fill_path("/v1/brain/memories/{memory_id}", memory_id=memory_id),
            result=type(None), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    async def archive_memory(self, memory_id: str, *, if_match: str | Unset = UNSET) -> models.Memory:
        """
        Remove a memory from recall and search, and keep it for audit.

        Requires the scope `brain:delete`.

        Args:
            memory_id: The id of a memory.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="archive_memory", method="POST", path=fill_path("/v1/brain/memories/{memory_id}/archive", memory_id=memory_id),
            result=models.Memory, headers=given(**{"If-Match": if_match}),
        ))

    async def restore_memory(self, memory_id: str, *, if_match: str | Unset = UNSET) -> models.Memory:
        """
        Return an archived memory to recall and search.

        Requires the scope `brain:delete`.

        Args:
            memory_id: The id of a memory.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="restore_memory", method="POST", path=fill_path("/v1/brain/memories/{memory_id}/restore", memory_id=memory_id),
            result=models.Memory, headers=given(**{"If-Match": if_match}),
        ))

    async def get_memory_history(
        self, memory_id: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> AsyncPage[models.MemoryVersion]:
        """
        List the versions of a memory, oldest first: the memories that it superseded, and those that superseded it.

        Requires the scope `brain:read`.

        Args:
            memory_id: The id of a memory.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
        """
        return await self._session.send_page(Call(
            operation="get_memory_history", method="GET", path=fill_path("/v1/brain/memories/{memory_id}/history", memory_id=memory_id),
            result=PageBody[models.MemoryVersion], query=given(cursor=cursor, page=page, per_page=per_page),
        ))
