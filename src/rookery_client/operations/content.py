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
        self, *, prompt: str | Unset | None = UNSET, messages: Sequence[inputs.MessageBody] | Unset | None = UNSET,
        template: str | Unset | None = UNSET, template_version: int | Unset | None = UNSET,
        variables: Mapping[str, object] | Unset = UNSET, model: str | Unset | None = UNSET, max_tokens: int | Unset | None = UNSET,
        temperature: float | Unset | None = UNSET, schema: Mapping[str, object] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset = UNSET, score: bool | Unset = UNSET,
        mode: Literal["sync", "queued", "stream"] | Unset = UNSET,
    ) -> models.Generation:
        """Generate content."""
        return self._session.send(Call(
            operation="create_generation", method="POST", path="/api/agent/content/generations", result=models.Generation,
            body=given(
                prompt=prompt, messages=messages, template=template, template_version=template_version, variables=variables, model=model,
                max_tokens=max_tokens, temperature=temperature, schema=schema, metadata=metadata, score=score, mode=mode,
            ),
            accepts_key=True,
        ))

    def create_generation_stream(
        self, *, prompt: str | Unset | None = UNSET, messages: Sequence[inputs.MessageBody] | Unset | None = UNSET,
        template: str | Unset | None = UNSET, template_version: int | Unset | None = UNSET,
        variables: Mapping[str, object] | Unset = UNSET, model: str | Unset | None = UNSET, max_tokens: int | Unset | None = UNSET,
        temperature: float | Unset | None = UNSET, schema: Mapping[str, object] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset = UNSET, score: bool | Unset = UNSET,
        mode: Literal["sync", "queued", "stream"] | Unset = UNSET,
    ) -> AbstractContextManager[EventSource]:
        """Generate content, and return its events as they happen."""
        return self._session.stream(Call(
            operation="create_generation", method="POST", path="/api/agent/content/generations", result=type(None),
            body=given(
                prompt=prompt, messages=messages, template=template, template_version=template_version, variables=variables, model=model,
                max_tokens=max_tokens, temperature=temperature, schema=schema, metadata=metadata, score=score, mode=mode,
            ),
            accept="text/event-stream", accepts_key=True,
        ))

    def list_generations(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["queued", "running", "succeeded", "failed", "cancelled"] | Unset = UNSET,
        mode: Literal["sync", "queued", "stream"] | Unset = UNSET, model: str | Unset = UNSET, template: str | Unset = UNSET,
        key_id: str | Unset = UNSET, batch_id: str | Unset = UNSET, since: datetime | str | Unset = UNSET,
    ) -> Page[models.GenerationItem]:
        """List generations."""
        return self._session.send_page(Call(
            operation="list_generations", method="GET", path="/api/agent/content/generations", result=PageBody[models.GenerationItem],
            query=given(
                page=page, per_page=per_page, status=status, mode=mode, model=model, template=template, key_id=key_id, batch_id=batch_id,
                since=since,
            ),
        ))

    def get_generation(self, generation_id: str) -> models.Generation:
        """Show a generation."""
        return self._session.send(Call(
            operation="get_generation", method="GET",
            path=fill_path("/api/agent/content/generations/{generation_id}", generation_id=generation_id), result=models.Generation,
        ))

    def get_generation_score(self, generation_id: str) -> models.ScoredGeneration:
        """Score the output of a generation."""
        return self._session.send(Call(
            operation="get_generation_score", method="GET",
            path=fill_path("/api/agent/content/generations/{generation_id}/score", generation_id=generation_id),
            result=models.ScoredGeneration,
        ))

    def cancel_generation(self, generation_id: str) -> models.Generation:
        """Cancel a generation."""
        return self._session.send(Call(
            operation="cancel_generation", method="POST",
            path=fill_path("/api/agent/content/generations/{generation_id}/cancel", generation_id=generation_id),
            result=models.Generation,
        ))

    def retry_generation(self, generation_id: str) -> models.Generation:
        """Repeat a generation."""
        return self._session.send(Call(
            operation="retry_generation", method="POST",
            path=fill_path("/api/agent/content/generations/{generation_id}/retry", generation_id=generation_id), result=models.Generation,
            accepts_key=True,
        ))

    def create_generation_batch(
        self, *, requests: Sequence[inputs.GenerationRequestBody], metadata: Mapping[str, object] | Unset = UNSET,
    ) -> models.GenerationBatch:
        """Queue a batch."""
        return self._session.send(Call(
            operation="create_generation_batch", method="POST", path="/api/agent/content/batches", result=models.GenerationBatch,
            body=given(requests=requests, metadata=metadata), accepts_key=True,
        ))

    def list_generation_batches(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, status: Literal["running", "finished"] | Unset = UNSET,
    ) -> Page[models.GenerationBatch]:
        """List batches."""
        return self._session.send_page(Call(
            operation="list_generation_batches", method="GET", path="/api/agent/content/batches", result=PageBody[models.GenerationBatch],
            query=given(page=page, per_page=per_page, status=status),
        ))

    def get_generation_batch(self, batch_id: str) -> models.GenerationBatch:
        """Show a batch."""
        return self._session.send(Call(
            operation="get_generation_batch", method="GET", path=fill_path("/api/agent/content/batches/{batch_id}", batch_id=batch_id),
            result=models.GenerationBatch,
        ))

    def list_generations_of_batch(
        self, batch_id: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> Page[models.GenerationItem]:
        """List the generations of a batch."""
        return self._session.send_page(Call(
            operation="list_generations_of_batch", method="GET",
            path=fill_path("/api/agent/content/batches/{batch_id}/generations", batch_id=batch_id),
            result=PageBody[models.GenerationItem], query=given(page=page, per_page=per_page),
        ))

    def cancel_generation_batch(self, batch_id: str) -> models.GenerationBatch:
        """Cancel a batch."""
        return self._session.send(Call(
            operation="cancel_generation_batch", method="POST",
            path=fill_path("/api/agent/content/batches/{batch_id}/cancel", batch_id=batch_id), result=models.GenerationBatch,
        ))

    def list_prompt_templates(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, q: str | Unset = UNSET,
    ) -> Page[models.PromptTemplate]:
        """List prompt templates."""
        return self._session.send_page(Call(
            operation="list_prompt_templates", method="GET", path="/api/agent/content/templates", result=PageBody[models.PromptTemplate],
            query=given(page=page, per_page=per_page, q=q),
        ))

    def create_prompt_template(
        self, *, name: str, slug: str, description: str | Unset = UNSET, variables: Mapping[str, object] | Unset = UNSET,
        prompt: str | Unset | None = UNSET, messages: Sequence[inputs.MessageBody] | Unset | None = UNSET,
        model: str | Unset | None = UNSET, max_tokens: int | Unset | None = UNSET, temperature: float | Unset | None = UNSET,
        schema: Mapping[str, object] | Unset | None = UNSET,
    ) -> models.PromptTemplate:
        """Create a prompt template."""
        return self._session.send(Call(
            operation="create_prompt_template", method="POST", path="/api/agent/content/templates", result=models.PromptTemplate,
            body=given(
                name=name, description=description, variables=variables, prompt=prompt, messages=messages, model=model,
                max_tokens=max_tokens, temperature=temperature, schema=schema, slug=slug,
            ),
            accepts_key=True,
        ))

    def get_prompt_template(self, slug: str, *, version: int | Unset = UNSET) -> models.PromptTemplate:
        """Show a prompt template."""
        return self._session.send(Call(
            operation="get_prompt_template", method="GET", path=fill_path("/api/agent/content/templates/{slug}", slug=slug),
            result=models.PromptTemplate, query=given(version=version),
        ))

    def replace_prompt_template(
        self, slug: str, *, name: str, if_match: str | Unset = UNSET, description: str | Unset = UNSET,
        variables: Mapping[str, object] | Unset = UNSET, prompt: str | Unset | None = UNSET,
        messages: Sequence[inputs.MessageBody] | Unset | None = UNSET, model: str | Unset | None = UNSET,
        max_tokens: int | Unset | None = UNSET, temperature: float | Unset | None = UNSET,
        schema: Mapping[str, object] | Unset | None = UNSET,
    ) -> models.PromptTemplate:
        """Store a new version of a prompt template."""
        return self._session.send(Call(
            operation="replace_prompt_template", method="PUT", path=fill_path("/api/agent/content/templates/{slug}", slug=slug),
            result=models.PromptTemplate, headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, variables=variables, prompt=prompt, messages=messages, model=model,
                max_tokens=max_tokens, temperature=temperature, schema=schema,
            ),
        ))

    def delete_prompt_template(self, slug: str, *, if_match: str | Unset = UNSET) -> None:
        """Delete a prompt template."""
        return self._session.send(Call(
            operation="delete_prompt_template", method="DELETE", path=fill_path("/api/agent/content/templates/{slug}", slug=slug),
            result=type(None), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    def list_prompt_template_versions(
        self, slug: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> Page[models.PromptTemplateVersion]:
        """List the versions of a prompt template."""
        return self._session.send_page(Call(
            operation="list_prompt_template_versions", method="GET",
            path=fill_path("/api/agent/content/templates/{slug}/versions", slug=slug), result=PageBody[models.PromptTemplateVersion],
            query=given(page=page, per_page=per_page),
        ))

    def preview_prompt_template(
        self, slug: str, *, variables: Mapping[str, object] | Unset = UNSET, version: int | Unset | None = UNSET,
    ) -> models.RenderedPrompt:
        """Fill in a prompt template."""
        return self._session.send(Call(
            operation="preview_prompt_template", method="POST", path=fill_path("/api/agent/content/templates/{slug}/preview", slug=slug),
            result=models.RenderedPrompt, body=given(variables=variables, version=version),
        ))

    def list_content_budgets(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, q: str | Unset = UNSET,
    ) -> Page[models.Budget]:
        """List daily budgets."""
        return self._session.send_page(Call(
            operation="list_content_budgets", method="GET", path="/api/agent/content/budgets", result=PageBody[models.Budget],
            query=given(page=page, per_page=per_page, q=q),
        ))

    def set_workspace_content_budget(self, *, daily: float | None, if_match: str | Unset = UNSET) -> models.Budget:
        """Set the daily budget of the workspace."""
        return self._session.send(Call(
            operation="set_workspace_content_budget", method="PUT", path="/api/agent/content/budgets/workspace", result=models.Budget,
            headers=given(**{"If-Match": if_match}), body=given(daily=daily),
        ))

    def delete_workspace_content_budget(self, *, if_match: str | Unset = UNSET) -> models.Budget:
        """Return to the default budget of the workspace."""
        return self._session.send(Call(
            operation="delete_workspace_content_budget", method="DELETE", path="/api/agent/content/budgets/workspace",
            result=models.Budget, headers=given(**{"If-Match": if_match}),
        ))

    def set_key_content_budget(self, key_id: str, *, daily: float | None, if_match: str | Unset = UNSET) -> models.Budget:
        """Set the daily budget of a key."""
        return self._session.send(Call(
            operation="set_key_content_budget", method="PUT", path=fill_path("/api/agent/content/budgets/keys/{key_id}", key_id=key_id),
            result=models.Budget, headers=given(**{"If-Match": if_match}), body=given(daily=daily),
        ))

    def delete_key_content_budget(self, key_id: str, *, if_match: str | Unset = UNSET) -> models.Budget:
        """Return to the default budget of a key."""
        return self._session.send(Call(
            operation="delete_key_content_budget", method="DELETE",
            path=fill_path("/api/agent/content/budgets/keys/{key_id}", key_id=key_id), result=models.Budget,
            headers=given(**{"If-Match": if_match}),
        ))

    def list_content_usage(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, key_id: str | Unset = UNSET, model: str | Unset = UNSET,
        since: date | str | Unset = UNSET, until: date | str | Unset = UNSET,
    ) -> Page[models.ContentUsage]:
        """Show usage by day and model."""
        return self._session.send_page(Call(
            operation="list_content_usage", method="GET", path="/api/agent/content/usage", result=PageBody[models.ContentUsage],
            query=given(page=page, per_page=per_page, key_id=key_id, model=model, since=since, until=until),
        ))


class AsyncContentOperations:
    """Operations of `client.content`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def create_generation(
        self, *, prompt: str | Unset | None = UNSET, messages: Sequence[inputs.MessageBody] | Unset | None = UNSET,
        template: str | Unset | None = UNSET, template_version: int | Unset | None = UNSET,
        variables: Mapping[str, object] | Unset = UNSET, model: str | Unset | None = UNSET, max_tokens: int | Unset | None = UNSET,
        temperature: float | Unset | None = UNSET, schema: Mapping[str, object] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset = UNSET, score: bool | Unset = UNSET,
        mode: Literal["sync", "queued", "stream"] | Unset = UNSET,
    ) -> models.Generation:
        """Generate content."""
        return await self._session.send(Call(
            operation="create_generation", method="POST", path="/api/agent/content/generations", result=models.Generation,
            body=given(
                prompt=prompt, messages=messages, template=template, template_version=template_version, variables=variables, model=model,
                max_tokens=max_tokens, temperature=temperature, schema=schema, metadata=metadata, score=score, mode=mode,
            ),
            accepts_key=True,
        ))

    def create_generation_stream(
        self, *, prompt: str | Unset | None = UNSET, messages: Sequence[inputs.MessageBody] | Unset | None = UNSET,
        template: str | Unset | None = UNSET, template_version: int | Unset | None = UNSET,
        variables: Mapping[str, object] | Unset = UNSET, model: str | Unset | None = UNSET, max_tokens: int | Unset | None = UNSET,
        temperature: float | Unset | None = UNSET, schema: Mapping[str, object] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset = UNSET, score: bool | Unset = UNSET,
        mode: Literal["sync", "queued", "stream"] | Unset = UNSET,
    ) -> AbstractAsyncContextManager[EventSource]:
        """Generate content, and return its events as they happen."""
        return self._session.stream(Call(
            operation="create_generation", method="POST", path="/api/agent/content/generations", result=type(None),
            body=given(
                prompt=prompt, messages=messages, template=template, template_version=template_version, variables=variables, model=model,
                max_tokens=max_tokens, temperature=temperature, schema=schema, metadata=metadata, score=score, mode=mode,
            ),
            accept="text/event-stream", accepts_key=True,
        ))

    async def list_generations(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["queued", "running", "succeeded", "failed", "cancelled"] | Unset = UNSET,
        mode: Literal["sync", "queued", "stream"] | Unset = UNSET, model: str | Unset = UNSET, template: str | Unset = UNSET,
        key_id: str | Unset = UNSET, batch_id: str | Unset = UNSET, since: datetime | str | Unset = UNSET,
    ) -> AsyncPage[models.GenerationItem]:
        """List generations."""
        return await self._session.send_page(Call(
            operation="list_generations", method="GET", path="/api/agent/content/generations", result=PageBody[models.GenerationItem],
            query=given(
                page=page, per_page=per_page, status=status, mode=mode, model=model, template=template, key_id=key_id, batch_id=batch_id,
                since=since,
            ),
        ))

    async def get_generation(self, generation_id: str) -> models.Generation:
        """Show a generation."""
        return await self._session.send(Call(
            operation="get_generation", method="GET",
            path=fill_path("/api/agent/content/generations/{generation_id}", generation_id=generation_id), result=models.Generation,
        ))

    async def get_generation_score(self, generation_id: str) -> models.ScoredGeneration:
        """Score the output of a generation."""
        return await self._session.send(Call(
            operation="get_generation_score", method="GET",
            path=fill_path("/api/agent/content/generations/{generation_id}/score", generation_id=generation_id),
            result=models.ScoredGeneration,
        ))

    async def cancel_generation(self, generation_id: str) -> models.Generation:
        """Cancel a generation."""
        return await self._session.send(Call(
            operation="cancel_generation", method="POST",
            path=fill_path("/api/agent/content/generations/{generation_id}/cancel", generation_id=generation_id),
            result=models.Generation,
        ))

    async def retry_generation(self, generation_id: str) -> models.Generation:
        """Repeat a generation."""
        return await self._session.send(Call(
            operation="retry_generation", method="POST",
            path=fill_path("/api/agent/content/generations/{generation_id}/retry", generation_id=generation_id), result=models.Generation,
            accepts_key=True,
        ))

    async def create_generation_batch(
        self, *, requests: Sequence[inputs.GenerationRequestBody], metadata: Mapping[str, object] | Unset = UNSET,
    ) -> models.GenerationBatch:
        """Queue a batch."""
        return await self._session.send(Call(
            operation="create_generation_batch", method="POST", path="/api/agent/content/batches", result=models.GenerationBatch,
            body=given(requests=requests, metadata=metadata), accepts_key=True,
        ))

    async def list_generation_batches(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, status: Literal["running", "finished"] | Unset = UNSET,
    ) -> AsyncPage[models.GenerationBatch]:
        """List batches."""
        return await self._session.send_page(Call(
            operation="list_generation_batches", method="GET", path="/api/agent/content/batches", result=PageBody[models.GenerationBatch],
            query=given(page=page, per_page=per_page, status=status),
        ))

    async def get_generation_batch(self, batch_id: str) -> models.GenerationBatch:
        """Show a batch."""
        return await self._session.send(Call(
            operation="get_generation_batch", method="GET", path=fill_path("/api/agent/content/batches/{batch_id}", batch_id=batch_id),
            result=models.GenerationBatch,
        ))

    async def list_generations_of_batch(
        self, batch_id: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> AsyncPage[models.GenerationItem]:
        """List the generations of a batch."""
        return await self._session.send_page(Call(
            operation="list_generations_of_batch", method="GET",
            path=fill_path("/api/agent/content/batches/{batch_id}/generations", batch_id=batch_id),
            result=PageBody[models.GenerationItem], query=given(page=page, per_page=per_page),
        ))

    async def cancel_generation_batch(self, batch_id: str) -> models.GenerationBatch:
        """Cancel a batch."""
        return await self._session.send(Call(
            operation="cancel_generation_batch", method="POST",
            path=fill_path("/api/agent/content/batches/{batch_id}/cancel", batch_id=batch_id), result=models.GenerationBatch,
        ))

    async def list_prompt_templates(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, q: str | Unset = UNSET,
    ) -> AsyncPage[models.PromptTemplate]:
        """List prompt templates."""
        return await self._session.send_page(Call(
            operation="list_prompt_templates", method="GET", path="/api/agent/content/templates", result=PageBody[models.PromptTemplate],
            query=given(page=page, per_page=per_page, q=q),
        ))

    async def create_prompt_template(
        self, *, name: str, slug: str, description: str | Unset = UNSET, variables: Mapping[str, object] | Unset = UNSET,
        prompt: str | Unset | None = UNSET, messages: Sequence[inputs.MessageBody] | Unset | None = UNSET,
        model: str | Unset | None = UNSET, max_tokens: int | Unset | None = UNSET, temperature: float | Unset | None = UNSET,
        schema: Mapping[str, object] | Unset | None = UNSET,
    ) -> models.PromptTemplate:
        """Create a prompt template."""
        return await self._session.send(Call(
            operation="create_prompt_template", method="POST", path="/api/agent/content/templates", result=models.PromptTemplate,
            body=given(
                name=name, description=description, variables=variables, prompt=prompt, messages=messages, model=model,
                max_tokens=max_tokens, temperature=temperature, schema=schema, slug=slug,
            ),
            accepts_key=True,
        ))

    async def get_prompt_template(self, slug: str, *, version: int | Unset = UNSET) -> models.PromptTemplate:
        """Show a prompt template."""
        return await self._session.send(Call(
            operation="get_prompt_template", method="GET", path=fill_path("/api/agent/content/templates/{slug}", slug=slug),
            result=models.PromptTemplate, query=given(version=version),
        ))

    async def replace_prompt_template(
        self, slug: str, *, name: str, if_match: str | Unset = UNSET, description: str | Unset = UNSET,
        variables: Mapping[str, object] | Unset = UNSET, prompt: str | Unset | None = UNSET,
        messages: Sequence[inputs.MessageBody] | Unset | None = UNSET, model: str | Unset | None = UNSET,
        max_tokens: int | Unset | None = UNSET, temperature: float | Unset | None = UNSET,
        schema: Mapping[str, object] | Unset | None = UNSET,
    ) -> models.PromptTemplate:
        """Store a new version of a prompt template."""
        return await self._session.send(Call(
            operation="replace_prompt_template", method="PUT", path=fill_path("/api/agent/content/templates/{slug}", slug=slug),
            result=models.PromptTemplate, headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, variables=variables, prompt=prompt, messages=messages, model=model,
                max_tokens=max_tokens, temperature=temperature, schema=schema,
            ),
        ))

    async def delete_prompt_template(self, slug: str, *, if_match: str | Unset = UNSET) -> None:
        """Delete a prompt template."""
        return await self._session.send(Call(
            operation="delete_prompt_template", method="DELETE", path=fill_path("/api/agent/content/templates/{slug}", slug=slug),
            result=type(None), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    async def list_prompt_template_versions(
        self, slug: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> AsyncPage[models.PromptTemplateVersion]:
        """List the versions of a prompt template."""
        return await self._session.send_page(Call(
            operation="list_prompt_template_versions", method="GET",
            path=fill_path("/api/agent/content/templates/{slug}/versions", slug=slug), result=PageBody[models.PromptTemplateVersion],
            query=given(page=page, per_page=per_page),
        ))

    async def preview_prompt_template(
        self, slug: str, *, variables: Mapping[str, object] | Unset = UNSET, version: int | Unset | None = UNSET,
    ) -> models.RenderedPrompt:
        """Fill in a prompt template."""
        return await self._session.send(Call(
            operation="preview_prompt_template", method="POST", path=fill_path("/api/agent/content/templates/{slug}/preview", slug=slug),
            result=models.RenderedPrompt, body=given(variables=variables, version=version),
        ))

    async def list_content_budgets(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, q: str | Unset = UNSET,
    ) -> AsyncPage[models.Budget]:
        """List daily budgets."""
        return await self._session.send_page(Call(
            operation="list_content_budgets", method="GET", path="/api/agent/content/budgets", result=PageBody[models.Budget],
            query=given(page=page, per_page=per_page, q=q),
        ))

    async def set_workspace_content_budget(self, *, daily: float | None, if_match: str | Unset = UNSET) -> models.Budget:
        """Set the daily budget of the workspace."""
        return await self._session.send(Call(
            operation="set_workspace_content_budget", method="PUT", path="/api/agent/content/budgets/workspace", result=models.Budget,
            headers=given(**{"If-Match": if_match}), body=given(daily=daily),
        ))

    async def delete_workspace_content_budget(self, *, if_match: str | Unset = UNSET) -> models.Budget:
        """Return to the default budget of the workspace."""
        return await self._session.send(Call(
            operation="delete_workspace_content_budget", method="DELETE", path="/api/agent/content/budgets/workspace",
            result=models.Budget, headers=given(**{"If-Match": if_match}),
        ))

    async def set_key_content_budget(self, key_id: str, *, daily: float | None, if_match: str | Unset = UNSET) -> models.Budget:
        """Set the daily budget of a key."""
        return await self._session.send(Call(
            operation="set_key_content_budget", method="PUT", path=fill_path("/api/agent/content/budgets/keys/{key_id}", key_id=key_id),
            result=models.Budget, headers=given(**{"If-Match": if_match}), body=given(daily=daily),
        ))

    async def delete_key_content_budget(self, key_id: str, *, if_match: str | Unset = UNSET) -> models.Budget:
        """Return to the default budget of a key."""
        return await self._session.send(Call(
            operation="delete_key_content_budget", method="DELETE",
            path=fill_path("/api/agent/content/budgets/keys/{key_id}", key_id=key_id), result=models.Budget,
            headers=given(**{"If-Match": if_match}),
        ))

    async def list_content_usage(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, key_id: str | Unset = UNSET, model: str | Unset = UNSET,
        since: date | str | Unset = UNSET, until: date | str | Unset = UNSET,
    ) -> AsyncPage[models.ContentUsage]:
        """Show usage by day and model."""
        return await self._session.send_page(Call(
            operation="list_content_usage", method="GET", path="/api/agent/content/usage", result=PageBody[models.ContentUsage],
            query=given(page=page, per_page=per_page, key_id=key_id, model=model, since=since, until=until),
        ))
