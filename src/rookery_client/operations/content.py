"""
Operations of `client.content`.

Written by `make client` from the declarations of the operations. Change those, not this file.
"""

# fmt: off

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import date, datetime
from typing import Literal

from httpx2 import EventSource

from rookery_client.calls import UNSET, Call, Unset, fill_path, given
from rookery_client.generated import inputs, models
from rookery_client.pages import AsyncPage, Page, PageBody
from rookery_client.sessions import AsyncSession, Session


class ContentOperations:
    """Operations of `client.content`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def create_generation(
        self, *, messages: Sequence[inputs.MessageBody] | Unset | None = UNSET, template: str | Unset | None = UNSET,
        template_version: int | Unset | None = UNSET, variables: Mapping[str, object] | Unset = UNSET,
        model: str | Unset | None = UNSET, max_tokens: int | Unset | None = UNSET, temperature: float | Unset | None = UNSET,
        schema: Mapping[str, object] | Unset | None = UNSET, metadata: Mapping[str, object] | Unset = UNSET,
        score: bool | Unset = UNSET, prompt: str | Unset | None = UNSET, mode: Literal["sync", "queued", "stream"] | Unset = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Generation:
        """
        Generate content with the configured language model. The keys of a sandbox get fixed texts, marked as `canned`.

        `sync` waits for the answer. If the client disconnects, the call is cancelled. An error of the provider is the response, with
        the `generation_id` of the failed generation.

        `queued` returns at once with 202. Read the generation later, or subscribe to `generation.*` events.

        Requires the scope `content.write`.

        Args:
            messages: The conversation. The last message is usually the user's.
            template: The name of the template in URLs: lower-case letters, digits and hyphens.
            template_version: A version of the template. Default: the current one.
            variables: Values by variable name. Variables with a default can be omitted.
            model: The model, by its name at the provider.
            max_tokens: Maximum tokens of the answer. Default: 1,024.
            temperature: 0 for the most likely words, higher for more variety.
            schema: A JSON schema. The answer is JSON that matches it.
            metadata: Your own data about the request, as JSON of at most 16 KiB.
            score: Score the output as the answer to the messages, offline. Needs the scope score:read. Default: `false`.
            prompt: The prompt: one message of the user.
            mode: sync: in the response. queued: later, by the id. stream: as server-sent events. Default: `"sync"`.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="create_generation", method="POST", path="/api/agent/content/generations", result=models.Generation,
            body=given(
                messages=messages, template=template, template_version=template_version, variables=variables, model=model,
                max_tokens=max_tokens, temperature=temperature, schema=schema, metadata=metadata, score=score, prompt=prompt, mode=mode,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    def create_generation_stream(
        self, *, messages: Sequence[inputs.MessageBody] | Unset | None = UNSET, template: str | Unset | None = UNSET,
        template_version: int | Unset | None = UNSET, variables: Mapping[str, object] | Unset = UNSET,
        model: str | Unset | None = UNSET, max_tokens: int | Unset | None = UNSET, temperature: float | Unset | None = UNSET,
        schema: Mapping[str, object] | Unset | None = UNSET, metadata: Mapping[str, object] | Unset = UNSET,
        score: bool | Unset = UNSET, prompt: str | Unset | None = UNSET, mode: Literal["sync", "queued", "stream"] | Unset = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> AbstractContextManager[EventSource]:
        """
        Generate content, and return its events as they happen.

        Generate content with the configured language model. The keys of a sandbox get fixed texts, marked as `canned`.

        `sync` waits for the answer. If the client disconnects, the call is cancelled. An error of the provider is the response, with
        the `generation_id` of the failed generation.

        `queued` returns at once with 202. Read the generation later, or subscribe to `generation.*` events.

        `stream` returns server-sent events: `start` with the generation, `delta` with each piece of the answer as `text`, `reasoning`
        with each piece of the reasoning before it, if the model shows it, and `done` with the generation at its end, whatever its
        status. Nothing is requested from the provider again after the first piece.

        Requires the scope `content.write`.

        Args:
            messages: The conversation. The last message is usually the user's.
            template: The name of the template in URLs: lower-case letters, digits and hyphens.
            template_version: A version of the template. Default: the current one.
            variables: Values by variable name. Variables with a default can be omitted.
            model: The model, by its name at the provider.
            max_tokens: Maximum tokens of the answer. Default: 1,024.
            temperature: 0 for the most likely words, higher for more variety.
            schema: A JSON schema. The answer is JSON that matches it.
            metadata: Your own data about the request, as JSON of at most 16 KiB.
            score: Score the output as the answer to the messages, offline. Needs the scope score:read. Default: `false`.
            prompt: The prompt: one message of the user.
            mode: sync: in the response. queued: later, by the id. stream: as server-sent events. Default: `"sync"`.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.stream(Call(
            operation="create_generation", method="POST", path="/api/agent/content/generations", result=type(None),
            body=given(
                messages=messages, template=template, template_version=template_version, variables=variables, model=model,
                max_tokens=max_tokens, temperature=temperature, schema=schema, metadata=metadata, score=score, prompt=prompt, mode=mode,
            ),
            accept="text/event-stream", accepts_key=True, idempotency_key=idempotency_key,
        ))

    def list_generations(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["queued", "running", "succeeded", "failed", "cancelled"] | Unset = UNSET,
        mode: Literal["sync", "queued", "stream"] | Unset = UNSET, model: str | Unset = UNSET, template: str | Unset = UNSET,
        key_id: str | Unset = UNSET, batch_id: str | Unset = UNSET, since: datetime | str | Unset = UNSET,
    ) -> Page[models.GenerationItem]:
        """
        List the generations of the workspace without their messages and outputs, newest first.

        Requires the scope `content.read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            status: Only generations with this status.
            mode: Only generations in this mode.
            model: Only generations by this model.
            template: Only generations from this template.
            key_id: Only generations of this key.
            batch_id: Only generations of this batch.
            since: Only generations created at this time or later.
        """
        return self._session.send_page(Call(
            operation="list_generations", method="GET", path="/api/agent/content/generations", result=PageBody[models.GenerationItem],
            query=given(
                cursor=cursor, page=page, per_page=per_page, status=status, mode=mode, model=model, template=template, key_id=key_id,
                batch_id=batch_id, since=since,
            ),
        ))

    def get_generation(self, generation_id: str) -> models.Generation:
        """
        Return a generation with its messages and its output.

        Requires the scope `content.read`.

        Args:
            generation_id: The id of a generation.
        """
        return self._session.send(Call(
            operation="get_generation", method="GET",
            path=fill_path("/api/agent/content/generations/{generation_id}", generation_id=generation_id), result=models.Generation,
        ))

    def get_generation_score(self, generation_id: str) -> models.ScoredGeneration:
        """
        Return whether the output of a generation reads as written by a model, and how sycophantic it is as an answer to its messages.

        Each request computes it, offline, and the score is not stored. Needs the scope score:read too.

        Requires the scope `content.read`.

        Args:
            generation_id: The id of a generation.
        """
        return self._session.send(Call(
            operation="get_generation_score", method="GET",
            path=fill_path("/api/agent/content/generations/{generation_id}/score", generation_id=generation_id),
            result=models.ScoredGeneration,
        ))

    def cancel_generation(self, generation_id: str) -> models.Generation:
        """
        Cancel a queued or running generation. It stays cancelled, even if the provider still answers.

        Cancelling it again changes nothing.

        Requires the scope `content.write`.

        Args:
            generation_id: The id of a generation.
        """
        return self._session.send(Call(
            operation="cancel_generation", method="POST",
            path=fill_path("/api/agent/content/generations/{generation_id}/cancel", generation_id=generation_id),
            result=models.Generation,
        ))

    def retry_generation(self, generation_id: str, idempotency_key: str | Unset = UNSET) -> models.Generation:
        """
        Queue a copy of a failed or cancelled generation. It has the same messages, and `retry_of` names the original.

        Requires the scope `content.write`.

        Args:
            generation_id: The id of a generation.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="retry_generation", method="POST",
            path=fill_path("/api/agent/content/generations/{generation_id}/retry", generation_id=generation_id), result=models.Generation,
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    def create_generation_batch(
        self, *, requests: Sequence[inputs.GenerationRequestBody], metadata: Mapping[str, object] | Unset = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.GenerationBatch:
        """
        Queue up to 500 generations. Each has its own outcome.

        If one of them is invalid, nothing is stored, and the error names its position: `requests.3.prompt`.

        Requires the scope `content.write`.

        Args:
            requests: The generations.
            metadata: Your own data about the request, as JSON of at most 16 KiB.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="create_generation_batch", method="POST", path="/api/agent/content/batches", result=models.GenerationBatch,
            body=given(requests=requests, metadata=metadata), accepts_key=True, idempotency_key=idempotency_key,
        ))

    def list_generation_batches(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["running", "finished"] | Unset = UNSET,
    ) -> Page[models.GenerationBatch]:
        """
        List the batches of the workspace, newest first.

        Requires the scope `content.read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            status: Only batches in this state.
        """
        return self._session.send_page(Call(
            operation="list_generation_batches", method="GET", path="/api/agent/content/batches", result=PageBody[models.GenerationBatch],
            query=given(cursor=cursor, page=page, per_page=per_page, status=status),
        ))

    def get_generation_batch(self, batch_id: str) -> models.GenerationBatch:
        """
        Return a batch with the number of its generations by status.

        Requires the scope `content.read`.

        Args:
            batch_id: The id of a batch of generations.
        """
        return self._session.send(Call(
            operation="get_generation_batch", method="GET", path=fill_path("/api/agent/content/batches/{batch_id}", batch_id=batch_id),
            result=models.GenerationBatch,
        ))

    def list_generations_of_batch(
        self, batch_id: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> Page[models.GenerationItem]:
        """
        List the generations of a batch in the order of the request, without their messages and outputs.

        Requires the scope `content.read`.

        Args:
            batch_id: The id of a batch of generations.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
        """
        return self._session.send_page(Call(
            operation="list_generations_of_batch", method="GET",
            path=fill_path("/api/agent/content/batches/{batch_id}/generations", batch_id=batch_id),
            result=PageBody[models.GenerationItem], query=given(cursor=cursor, page=page, per_page=per_page),
        ))

    def cancel_generation_batch(self, batch_id: str) -> models.GenerationBatch:
        """
        Cancel all generations of a batch that have not ended.

        Requires the scope `content.write`.

        Args:
            batch_id: The id of a batch of generations.
        """
        return self._session.send(Call(
            operation="cancel_generation_batch", method="POST",
            path=fill_path("/api/agent/content/batches/{batch_id}/cancel", batch_id=batch_id), result=models.GenerationBatch,
        ))

    def list_prompt_templates(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET, q: str | Unset = UNSET,
    ) -> Page[models.PromptTemplate]:
        """
        List the prompt templates of the workspace in their current versions, by slug.

        Requires the scope `content.read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            q: A part of the slug or the name.
        """
        return self._session.send_page(Call(
            operation="list_prompt_templates", method="GET", path="/api/agent/content/templates", result=PageBody[models.PromptTemplate],
            query=given(cursor=cursor, page=page, per_page=per_page, q=q),
        ))

    def create_prompt_template(
        self, *, slug: str, name: str, description: str | Unset = UNSET, variables: Mapping[str, object] | Unset = UNSET,
        messages: Sequence[inputs.MessageBody] | Unset | None = UNSET, model: str | Unset | None = UNSET,
        max_tokens: int | Unset | None = UNSET, temperature: float | Unset | None = UNSET,
        schema: Mapping[str, object] | Unset | None = UNSET, prompt: str | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.PromptTemplate:
        """
        Create a prompt template as version 1. Each `{{ name }}` in its messages must be one of its variables.

        Requires the scope `content.write`.

        Args:
            slug: The name of the template in URLs: lower-case letters, digits and hyphens.
            name: The name of the template.
            description: When to use it. Default: `""`.
            variables: The variables by name.
            messages: The conversation. The last message is usually the user's.
            model: The model, by its name at the provider.
            max_tokens: Maximum tokens of the answer. Default: 1,024.
            temperature: 0 for the most likely words, higher for more variety.
            schema: A JSON schema. The answer is JSON that matches it.
            prompt: The message of the user, in place of `messages`.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="create_prompt_template", method="POST", path="/api/agent/content/templates", result=models.PromptTemplate,
            body=given(
                slug=slug, name=name, description=description, variables=variables, messages=messages, model=model, max_tokens=max_tokens,
                temperature=temperature, schema=schema, prompt=prompt,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    def get_prompt_template(self, slug: str, *, version: int | Unset = UNSET) -> models.PromptTemplate:
        """
        Return a prompt template in its current version, or in `version`.

        Requires the scope `content.read`.

        Args:
            slug: The slug of a template.
            version: A version of the template. Default: the current one.
        """
        return self._session.send(Call(
            operation="get_prompt_template", method="GET", path=fill_path("/api/agent/content/templates/{slug}", slug=slug),
            result=models.PromptTemplate, query=given(version=version),
        ))

    def replace_prompt_template(
        self, slug: str, *, name: str, if_match: str | Unset = UNSET, description: str | Unset = UNSET,
        variables: Mapping[str, object] | Unset = UNSET, messages: Sequence[inputs.MessageBody] | Unset | None = UNSET,
        model: str | Unset | None = UNSET, max_tokens: int | Unset | None = UNSET, temperature: float | Unset | None = UNSET,
        schema: Mapping[str, object] | Unset | None = UNSET, prompt: str | Unset | None = UNSET,
    ) -> models.PromptTemplate:
        """
        Replace a prompt template by a new version. The same content again changes nothing. Earlier versions stay.

        Requires the scope `content.write`.

        Args:
            slug: The slug of a template.
            name: The name of the template.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            description: When to use it. Default: `""`.
            variables: The variables by name.
            messages: The conversation. The last message is usually the user's.
            model: The model, by its name at the provider.
            max_tokens: Maximum tokens of the answer. Default: 1,024.
            temperature: 0 for the most likely words, higher for more variety.
            schema: A JSON schema. The answer is JSON that matches it.
            prompt: The message of the user, in place of `messages`.
        """
        return self._session.send(Call(
            operation="replace_prompt_template", method="PUT", path=fill_path("/api/agent/content/templates/{slug}", slug=slug),
            result=models.PromptTemplate, headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, variables=variables, messages=messages, model=model, max_tokens=max_tokens,
                temperature=temperature, schema=schema, prompt=prompt,
            ),
        ))

    def delete_prompt_template(self, slug: str, *, if_match: str | Unset = UNSET) -> None:
        """
        Delete a prompt template with all its versions. Generations that were created from it stay.

        Requires the scope `content.write`.

        Args:
            slug: The slug of a template.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="delete_prompt_template", method="DELETE", path=fill_path("/api/agent/content/templates/{slug}", slug=slug),
            result=type(None), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    def list_prompt_template_versions(
        self, slug: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> Page[models.PromptTemplateVersion]:
        """
        List the versions of a prompt template, newest first. The newest 50 are stored.

        Requires the scope `content.read`.

        Args:
            slug: The slug of a template.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
        """
        return self._session.send_page(Call(
            operation="list_prompt_template_versions", method="GET",
            path=fill_path("/api/agent/content/templates/{slug}/versions", slug=slug), result=PageBody[models.PromptTemplateVersion],
            query=given(cursor=cursor, page=page, per_page=per_page),
        ))

    def preview_prompt_template(
        self, slug: str, *, variables: Mapping[str, object] | Unset = UNSET, version: int | Unset | None = UNSET,
    ) -> models.RenderedPrompt:
        """
        Return the messages of a prompt template with its variables filled in. Nothing is sent or stored.

        Requires the scope `content.read`.

        Args:
            slug: The slug of a template.
            variables: Values by variable name. Variables with a default can be omitted.
            version: A version of the template. Default: the current one.
        """
        return self._session.send(Call(
            operation="preview_prompt_template", method="POST", path=fill_path("/api/agent/content/templates/{slug}/preview", slug=slug),
            result=models.RenderedPrompt, body=given(variables=variables, version=version), repeatable=True,
        ))

    def list_content_budgets(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET, q: str | Unset = UNSET,
    ) -> Page[models.Budget]:
        """
        List the budgets of the workspace, those of the calling key, and those of all keys with a budget of their own.

        Requires the scope `content.read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            q: A part of the name of the key.
        """
        return self._session.send_page(Call(
            operation="list_content_budgets", method="GET", path="/api/agent/content/budgets", result=PageBody[models.Budget],
            query=given(cursor=cursor, page=page, per_page=per_page, q=q),
        ))

    def set_workspace_content_budget(
        self, *, if_match: str | Unset = UNSET, daily: float | Unset | None = UNSET, monthly: float | Unset | None = UNSET,
    ) -> models.Budget:
        """
        Set budgets of the workspace, which cover the calls of all its keys together. Days and months begin at midnight in UTC.

        Requires the scope `keys:write`.

        Args:
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            daily: The limit per day in `currency`; null: no limit.
            monthly: The limit per calendar month in `currency`; null: no limit.
        """
        return self._session.send(Call(
            operation="set_workspace_content_budget", method="PUT", path="/api/agent/content/budgets/workspace", result=models.Budget,
            headers=given(**{"If-Match": if_match}), body=given(daily=daily, monthly=monthly),
        ))

    def delete_workspace_content_budget(
        self, *, period: Literal["day", "month"] | Unset = UNSET, if_match: str | Unset = UNSET,
    ) -> models.Budget:
        """
        Remove the budgets that were set for the workspace, or the one of `period`. The operator's defaults apply again.

        Requires the scope `keys:write`.

        Args:
            period: day: the daily budget. month: the monthly one. By default both.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="delete_workspace_content_budget", method="DELETE", path="/api/agent/content/budgets/workspace",
            result=models.Budget, query=given(period=period), headers=given(**{"If-Match": if_match}),
        ))

    def set_key_content_budget(
        self, key_id: str, *, if_match: str | Unset = UNSET, daily: float | Unset | None = UNSET,
        monthly: float | Unset | None = UNSET,
    ) -> models.Budget:
        """
        Set budgets of a key. A call must be covered by each budget of its key and of the workspace.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            daily: The limit per day in `currency`; null: no limit.
            monthly: The limit per calendar month in `currency`; null: no limit.
        """
        return self._session.send(Call(
            operation="set_key_content_budget", method="PUT", path=fill_path("/api/agent/content/budgets/keys/{key_id}", key_id=key_id),
            result=models.Budget, headers=given(**{"If-Match": if_match}), body=given(daily=daily, monthly=monthly),
        ))

    def delete_key_content_budget(
        self, key_id: str, *, period: Literal["day", "month"] | Unset = UNSET, if_match: str | Unset = UNSET,
    ) -> models.Budget:
        """
        Remove the budgets that were set for a key, or the one of `period`. The operator's defaults apply again.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            period: day: the daily budget. month: the monthly one. By default both.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="delete_key_content_budget", method="DELETE",
            path=fill_path("/api/agent/content/budgets/keys/{key_id}", key_id=key_id), result=models.Budget, query=given(period=period),
            headers=given(**{"If-Match": if_match}),
        ))

    def list_content_usage(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET, key_id: str | Unset = UNSET,
        model: str | Unset = UNSET, since: date | str | Unset = UNSET, until: date | str | Unset = UNSET,
    ) -> Page[models.ContentUsage]:
        """
        List requests, tokens and cost by day, key and model, newest day first. Days are in UTC.

        Requires the scope `content.read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            key_id: Only usage by this key.
            model: Only usage of this model.
            since: Only this day or later, in UTC.
            until: Only this day or earlier, in UTC.
        """
        return self._session.send_page(Call(
            operation="list_content_usage", method="GET", path="/api/agent/content/usage", result=PageBody[models.ContentUsage],
            query=given(cursor=cursor, page=page, per_page=per_page, key_id=key_id, model=model, since=since, until=until),
        ))


class AsyncContentOperations:
    """Operations of `client.content`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def create_generation(
        self, *, messages: Sequence[inputs.MessageBody] | Unset | None = UNSET, template: str | Unset | None = UNSET,
        template_version: int | Unset | None = UNSET, variables: Mapping[str, object] | Unset = UNSET,
        model: str | Unset | None = UNSET, max_tokens: int | Unset | None = UNSET, temperature: float | Unset | None = UNSET,
        schema: Mapping[str, object] | Unset | None = UNSET, metadata: Mapping[str, object] | Unset = UNSET,
        score: bool | Unset = UNSET, prompt: str | Unset | None = UNSET, mode: Literal["sync", "queued", "stream"] | Unset = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Generation:
        """
        Generate content with the configured language model. The keys of a sandbox get fixed texts, marked as `canned`.

        `sync` waits for the answer. If the client disconnects, the call is cancelled. An error of the provider is the response, with
        the `generation_id` of the failed generation.

        `queued` returns at once with 202. Read the generation later, or subscribe to `generation.*` events.

        Requires the scope `content.write`.

        Args:
            messages: The conversation. The last message is usually the user's.
            template: The name of the template in URLs: lower-case letters, digits and hyphens.
            template_version: A version of the template. Default: the current one.
            variables: Values by variable name. Variables with a default can be omitted.
            model: The model, by its name at the provider.
            max_tokens: Maximum tokens of the answer. Default: 1,024.
            temperature: 0 for the most likely words, higher for more variety.
            schema: A JSON schema. The answer is JSON that matches it.
            metadata: Your own data about the request, as JSON of at most 16 KiB.
            score: Score the output as the answer to the messages, offline. Needs the scope score:read. Default: `false`.
            prompt: The prompt: one message of the user.
            mode: sync: in the response. queued: later, by the id. stream: as server-sent events. Default: `"sync"`.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="create_generation", method="POST", path="/api/agent/content/generations", result=models.Generation,
            body=given(
                messages=messages, template=template, template_version=template_version, variables=variables, model=model,
                max_tokens=max_tokens, temperature=temperature, schema=schema, metadata=metadata, score=score, prompt=prompt, mode=mode,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    def create_generation_stream(
        self, *, messages: Sequence[inputs.MessageBody] | Unset | None = UNSET, template: str | Unset | None = UNSET,
        template_version: int | Unset | None = UNSET, variables: Mapping[str, object] | Unset = UNSET,
        model: str | Unset | None = UNSET, max_tokens: int | Unset | None = UNSET, temperature: float | Unset | None = UNSET,
        schema: Mapping[str, object] | Unset | None = UNSET, metadata: Mapping[str, object] | Unset = UNSET,
        score: bool | Unset = UNSET, prompt: str | Unset | None = UNSET, mode: Literal["sync", "queued", "stream"] | Unset = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> AbstractAsyncContextManager[EventSource]:
        """
        Generate content, and return its events as they happen.

        Generate content with the configured language model. The keys of a sandbox get fixed texts, marked as `canned`.

        `sync` waits for the answer. If the client disconnects, the call is cancelled. An error of the provider is the response, with
        the `generation_id` of the failed generation.

        `queued` returns at once with 202. Read the generation later, or subscribe to `generation.*` events.

        `stream` returns server-sent events: `start` with the generation, `delta` with each piece of the answer as `text`, `reasoning`
        with each piece of the reasoning before it, if the model shows it, and `done` with the generation at its end, whatever its
        status. Nothing is requested from the provider again after the first piece.

        Requires the scope `content.write`.

        Args:
            messages: The conversation. The last message is usually the user's.
            template: The name of the template in URLs: lower-case letters, digits and hyphens.
            template_version: A version of the template. Default: the current one.
            variables: Values by variable name. Variables with a default can be omitted.
            model: The model, by its name at the provider.
            max_tokens: Maximum tokens of the answer. Default: 1,024.
            temperature: 0 for the most likely words, higher for more variety.
            schema: A JSON schema. The answer is JSON that matches it.
            metadata: Your own data about the request, as JSON of at most 16 KiB.
            score: Score the output as the answer to the messages, offline. Needs the scope score:read. Default: `false`.
            prompt: The prompt: one message of the user.
            mode: sync: in the response. queued: later, by the id. stream: as server-sent events. Default: `"sync"`.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.stream(Call(
            operation="create_generation", method="POST", path="/api/agent/content/generations", result=type(None),
            body=given(
                messages=messages, template=template, template_version=template_version, variables=variables, model=model,
                max_tokens=max_tokens, temperature=temperature, schema=schema, metadata=metadata, score=score, prompt=prompt, mode=mode,
            ),
            accept="text/event-stream", accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def list_generations(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["queued", "running", "succeeded", "failed", "cancelled"] | Unset = UNSET,
        mode: Literal["sync", "queued", "stream"] | Unset = UNSET, model: str | Unset = UNSET, template: str | Unset = UNSET,
        key_id: str | Unset = UNSET, batch_id: str | Unset = UNSET, since: datetime | str | Unset = UNSET,
    ) -> AsyncPage[models.GenerationItem]:
        """
        List the generations of the workspace without their messages and outputs, newest first.

        Requires the scope `content.read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            status: Only generations with this status.
            mode: Only generations in this mode.
            model: Only generations by this model.
            template: Only generations from this template.
            key_id: Only generations of this key.
            batch_id: Only generations of this batch.
            since: Only generations created at this time or later.
        """
        return await self._session.send_page(Call(
            operation="list_generations", method="GET", path="/api/agent/content/generations", result=PageBody[models.GenerationItem],
            query=given(
                cursor=cursor, page=page, per_page=per_page, status=status, mode=mode, model=model, template=template, key_id=key_id,
                batch_id=batch_id, since=since,
            ),
        ))

    async def get_generation(self, generation_id: str) -> models.Generation:
        """
        Return a generation with its messages and its output.

        Requires the scope `content.read`.

        Args:
            generation_id: The id of a generation.
        """
        return await self._session.send(Call(
            operation="get_generation", method="GET",
            path=fill_path("/api/agent/content/generations/{generation_id}", generation_id=generation_id), result=models.Generation,
        ))

    async def get_generation_score(self, generation_id: str) -> models.ScoredGeneration:
        """
        Return whether the output of a generation reads as written by a model, and how sycophantic it is as an answer to its messages.

        Each request computes it, offline, and the score is not stored. Needs the scope score:read too.

        Requires the scope `content.read`.

        Args:
            generation_id: The id of a generation.
        """
        return await self._session.send(Call(
            operation="get_generation_score", method="GET",
            path=fill_path("/api/agent/content/generations/{generation_id}/score", generation_id=generation_id),
            result=models.ScoredGeneration,
        ))

    async def cancel_generation(self, generation_id: str) -> models.Generation:
        """
        Cancel a queued or running generation. It stays cancelled, even if the provider still answers.

        Cancelling it again changes nothing.

        Requires the scope `content.write`.

        Args:
            generation_id: The id of a generation.
        """
        return await self._session.send(Call(
            operation="cancel_generation", method="POST",
            path=fill_path("/api/agent/content/generations/{generation_id}/cancel", generation_id=generation_id),
            result=models.Generation,
        ))

    async def retry_generation(self, generation_id: str, idempotency_key: str | Unset = UNSET) -> models.Generation:
        """
        Queue a copy of a failed or cancelled generation. It has the same messages, and `retry_of` names the original.

        Requires the scope `content.write`.

        Args:
            generation_id: The id of a generation.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="retry_generation", method="POST",
            path=fill_path("/api/agent/content/generations/{generation_id}/retry", generation_id=generation_id), result=models.Generation,
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def create_generation_batch(
        self, *, requests: Sequence[inputs.GenerationRequestBody], metadata: Mapping[str, object] | Unset = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.GenerationBatch:
        """
        Queue up to 500 generations. Each has its own outcome.

        If one of them is invalid, nothing is stored, and the error names its position: `requests.3.prompt`.

        Requires the scope `content.write`.

        Args:
            requests: The generations.
            metadata: Your own data about the request, as JSON of at most 16 KiB.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="create_generation_batch", method="POST", path="/api/agent/content/batches", result=models.GenerationBatch,
            body=given(requests=requests, metadata=metadata), accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def list_generation_batches(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["running", "finished"] | Unset = UNSET,
    ) -> AsyncPage[models.GenerationBatch]:
        """
        List the batches of the workspace, newest first.

        Requires the scope `content.read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            status: Only batches in this state.
        """
        return await self._session.send_page(Call(
            operation="list_generation_batches", method="GET", path="/api/agent/content/batches", result=PageBody[models.GenerationBatch],
            query=given(cursor=cursor, page=page, per_page=per_page, status=status),
        ))

    async def get_generation_batch(self, batch_id: str) -> models.GenerationBatch:
        """
        Return a batch with the number of its generations by status.

        Requires the scope `content.read`.

        Args:
            batch_id: The id of a batch of generations.
        """
        return await self._session.send(Call(
            operation="get_generation_batch", method="GET", path=fill_path("/api/agent/content/batches/{batch_id}", batch_id=batch_id),
            result=models.GenerationBatch,
        ))

    async def list_generations_of_batch(
        self, batch_id: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> AsyncPage[models.GenerationItem]:
        """
        List the generations of a batch in the order of the request, without their messages and outputs.

        Requires the scope `content.read`.

        Args:
            batch_id: The id of a batch of generations.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
        """
        return await self._session.send_page(Call(
            operation="list_generations_of_batch", method="GET",
            path=fill_path("/api/agent/content/batches/{batch_id}/generations", batch_id=batch_id),
            result=PageBody[models.GenerationItem], query=given(cursor=cursor, page=page, per_page=per_page),
        ))

    async def cancel_generation_batch(self, batch_id: str) -> models.GenerationBatch:
        """
        Cancel all generations of a batch that have not ended.

        Requires the scope `content.write`.

        Args:
            batch_id: The id of a batch of generations.
        """
        return await self._session.send(Call(
            operation="cancel_generation_batch", method="POST",
            path=fill_path("/api/agent/content/batches/{batch_id}/cancel", batch_id=batch_id), result=models.GenerationBatch,
        ))

    async def list_prompt_templates(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET, q: str | Unset = UNSET,
    ) -> AsyncPage[models.PromptTemplate]:
        """
        List the prompt templates of the workspace in their current versions, by slug.

        Requires the scope `content.read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            q: A part of the slug or the name.
        """
        return await self._session.send_page(Call(
            operation="list_prompt_templates", method="GET", path="/api/agent/content/templates", result=PageBody[models.PromptTemplate],
            query=given(cursor=cursor, page=page, per_page=per_page, q=q),
        ))

    async def create_prompt_template(
        self, *, slug: str, name: str, description: str | Unset = UNSET, variables: Mapping[str, object] | Unset = UNSET,
        messages: Sequence[inputs.MessageBody] | Unset | None = UNSET, model: str | Unset | None = UNSET,
        max_tokens: int | Unset | None = UNSET, temperature: float | Unset | None = UNSET,
        schema: Mapping[str, object] | Unset | None = UNSET, prompt: str | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.PromptTemplate:
        """
        Create a prompt template as version 1. Each `{{ name }}` in its messages must be one of its variables.

        Requires the scope `content.write`.

        Args:
            slug: The name of the template in URLs: lower-case letters, digits and hyphens.
            name: The name of the template.
            description: When to use it. Default: `""`.
            variables: The variables by name.
            messages: The conversation. The last message is usually the user's.
            model: The model, by its name at the provider.
            max_tokens: Maximum tokens of the answer. Default: 1,024.
            temperature: 0 for the most likely words, higher for more variety.
            schema: A JSON schema. The answer is JSON that matches it.
            prompt: The message of the user, in place of `messages`.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="create_prompt_template", method="POST", path="/api/agent/content/templates", result=models.PromptTemplate,
            body=given(
                slug=slug, name=name, description=description, variables=variables, messages=messages, model=model, max_tokens=max_tokens,
                temperature=temperature, schema=schema, prompt=prompt,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def get_prompt_template(self, slug: str, *, version: int | Unset = UNSET) -> models.PromptTemplate:
        """
        Return a prompt template in its current version, or in `version`.

        Requires the scope `content.read`.

        Args:
            slug: The slug of a template.
            version: A version of the template. Default: the current one.
        """
        return await self._session.send(Call(
            operation="get_prompt_template", method="GET", path=fill_path("/api/agent/content/templates/{slug}", slug=slug),
            result=models.PromptTemplate, query=given(version=version),
        ))

    async def replace_prompt_template(
        self, slug: str, *, name: str, if_match: str | Unset = UNSET, description: str | Unset = UNSET,
        variables: Mapping[str, object] | Unset = UNSET, messages: Sequence[inputs.MessageBody] | Unset | None = UNSET,
        model: str | Unset | None = UNSET, max_tokens: int | Unset | None = UNSET, temperature: float | Unset | None = UNSET,
        schema: Mapping[str, object] | Unset | None = UNSET, prompt: str | Unset | None = UNSET,
    ) -> models.PromptTemplate:
        """
        Replace a prompt template by a new version. The same content again changes nothing. Earlier versions stay.

        Requires the scope `content.write`.

        Args:
            slug: The slug of a template.
            name: The name of the template.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            description: When to use it. Default: `""`.
            variables: The variables by name.
            messages: The conversation. The last message is usually the user's.
            model: The model, by its name at the provider.
            max_tokens: Maximum tokens of the answer. Default: 1,024.
            temperature: 0 for the most likely words, higher for more variety.
            schema: A JSON schema. The answer is JSON that matches it.
            prompt: The message of the user, in place of `messages`.
        """
        return await self._session.send(Call(
            operation="replace_prompt_template", method="PUT", path=fill_path("/api/agent/content/templates/{slug}", slug=slug),
            result=models.PromptTemplate, headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, variables=variables, messages=messages, model=model, max_tokens=max_tokens,
                temperature=temperature, schema=schema, prompt=prompt,
            ),
        ))

    async def delete_prompt_template(self, slug: str, *, if_match: str | Unset = UNSET) -> None:
        """
        Delete a prompt template with all its versions. Generations that were created from it stay.

        Requires the scope `content.write`.

        Args:
            slug: The slug of a template.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="delete_prompt_template", method="DELETE", path=fill_path("/api/agent/content/templates/{slug}", slug=slug),
            result=type(None), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    async def list_prompt_template_versions(
        self, slug: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> AsyncPage[models.PromptTemplateVersion]:
        """
        List the versions of a prompt template, newest first. The newest 50 are stored.

        Requires the scope `content.read`.

        Args:
            slug: The slug of a template.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
        """
        return await self._session.send_page(Call(
            operation="list_prompt_template_versions", method="GET",
            path=fill_path("/api/agent/content/templates/{slug}/versions", slug=slug), result=PageBody[models.PromptTemplateVersion],
            query=given(cursor=cursor, page=page, per_page=per_page),
        ))

    async def preview_prompt_template(
        self, slug: str, *, variables: Mapping[str, object] | Unset = UNSET, version: int | Unset | None = UNSET,
    ) -> models.RenderedPrompt:
        """
        Return the messages of a prompt template with its variables filled in. Nothing is sent or stored.

        Requires the scope `content.read`.

        Args:
            slug: The slug of a template.
            variables: Values by variable name. Variables with a default can be omitted.
            version: A version of the template. Default: the current one.
        """
        return await self._session.send(Call(
            operation="preview_prompt_template", method="POST", path=fill_path("/api/agent/content/templates/{slug}/preview", slug=slug),
            result=models.RenderedPrompt, body=given(variables=variables, version=version), repeatable=True,
        ))

    async def list_content_budgets(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET, q: str | Unset = UNSET,
    ) -> AsyncPage[models.Budget]:
        """
        List the budgets of the workspace, those of the calling key, and those of all keys with a budget of their own.

        Requires the scope `content.read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            q: A part of the name of the key.
        """
        return await self._session.send_page(Call(
            operation="list_content_budgets", method="GET", path="/api/agent/content/budgets", result=PageBody[models.Budget],
            query=given(cursor=cursor, page=page, per_page=per_page, q=q),
        ))

    async def set_workspace_content_budget(
        self, *, if_match: str | Unset = UNSET, daily: float | Unset | None = UNSET, monthly: float | Unset | None = UNSET,
    ) -> models.Budget:
        """
        Set budgets of the workspace, which cover the calls of all its keys together. Days and months begin at midnight in UTC.

        Requires the scope `keys:write`.

        Args:
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            daily: The limit per day in `currency`; null: no limit.
            monthly: The limit per calendar month in `currency`; null: no limit.
        """
        return await self._session.send(Call(
            operation="set_workspace_content_budget", method="PUT", path="/api/agent/content/budgets/workspace", result=models.Budget,
            headers=given(**{"If-Match": if_match}), body=given(daily=daily, monthly=monthly),
        ))

    async def delete_workspace_content_budget(
        self, *, period: Literal["day", "month"] | Unset = UNSET, if_match: str | Unset = UNSET,
    ) -> models.Budget:
        """
        Remove the budgets that were set for the workspace, or the one of `period`. The operator's defaults apply again.

        Requires the scope `keys:write`.

        Args:
            period: day: the daily budget. month: the monthly one. By default both.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="delete_workspace_content_budget", method="DELETE", path="/api/agent/content/budgets/workspace",
            result=models.Budget, query=given(period=period), headers=given(**{"If-Match": if_match}),
        ))

    async def set_key_content_budget(
        self, key_id: str, *, if_match: str | Unset = UNSET, daily: float | Unset | None = UNSET,
        monthly: float | Unset | None = UNSET,
    ) -> models.Budget:
        """
        Set budgets of a key. A call must be covered by each budget of its key and of the workspace.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            daily: The limit per day in `currency`; null: no limit.
            monthly: The limit per calendar month in `currency`; null: no limit.
        """
        return await self._session.send(Call(
            operation="set_key_content_budget", method="PUT", path=fill_path("/api/agent/content/budgets/keys/{key_id}", key_id=key_id),
            result=models.Budget, headers=given(**{"If-Match": if_match}), body=given(daily=daily, monthly=monthly),
        ))

    async def delete_key_content_budget(
        self, key_id: str, *, period: Literal["day", "month"] | Unset = UNSET, if_match: str | Unset = UNSET,
    ) -> models.Budget:
        """
        Remove the budgets that were set for a key, or the one of `period`. The operator's defaults apply again.

        Requires the scope `keys:write`.

        Args:
            key_id: The id of a key. This is not the key itself, which never appears in a URL.
            period: day: the daily budget. month: the monthly one. By default both.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="delete_key_content_budget", method="DELETE",
            path=fill_path("/api/agent/content/budgets/keys/{key_id}", key_id=key_id), result=models.Budget, query=given(period=period),
            headers=given(**{"If-Match": if_match}),
        ))

    async def list_content_usage(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET, key_id: str | Unset = UNSET,
        model: str | Unset = UNSET, since: date | str | Unset = UNSET, until: date | str | Unset = UNSET,
    ) -> AsyncPage[models.ContentUsage]:
        """
        List requests, tokens and cost by day, key and model, newest day first. Days are in UTC.

        Requires the scope `content.read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            key_id: Only usage by this key.
            model: Only usage of this model.
            since: Only this day or later, in UTC.
            until: Only this day or earlier, in UTC.
        """
        return await self._session.send_page(Call(
            operation="list_content_usage", method="GET", path="/api/agent/content/usage", result=PageBody[models.ContentUsage],
            query=given(cursor=cursor, page=page, per_page=per_page, key_id=key_id, model=model, since=since, until=until),
        ))
