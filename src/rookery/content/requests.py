"""The resolution of drafts: messages from templates, defaults, limits. The result is a generation that can be stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rookery.content.chat import MAX_PROMPT_CHARS, ChatMessage
from rookery.content.errors import GenerationNotConfigured
from rookery.content.models import ContentTenant, Generation, GenerationDraft, GenerationMode, GenerationStatus, PromptTemplate
from rookery.content.ports import TextGenerator
from rookery.content.prompt_templates import render_prompt, require_template
from rookery.content.response_schema import ResponseSchema
from rookery.kernel.db import Tx
from rookery.kernel.errors import NotFound, RookeryError, ValidationFailed

DEFAULT_MAX_TOKENS = 1_024
"""Tokens of an answer if neither the request nor its template limits them, and the operator allows as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generators:
    """
    The language models.

    Attributes:
        provider: The model of the settings; None: no provider is set.
        canned: The fixed texts for test keys.
        max_tokens: The highest `max_tokens` that a request may ask for.
    """

    provider: TextGenerator | None
    canned: TextGenerator
    max_tokens: int

    def get(self, *, is_canned: bool) -> TextGenerator:
        """
        Return a language model.

        Raises:
            GenerationNotConfigured: No provider is set.
        """
        if is_canned:
            return self.canned
        if self.provider is None:
            raise GenerationNotConfigured
        return self.provider

    def find(self, generation: Generation) -> TextGenerator:
        """Return the language model of a generation. Raises as `get`."""
        return self.get(is_canned=generation.is_canned)


def resolve_draft(
    tx: Tx, tenant: ContentTenant, draft: GenerationDraft, generators: Generators, *, id: str, mode: GenerationMode, now: datetime
) -> Generation:
    """
    Return a queued generation for *draft*, with the messages of its template and all defaults.

    Raises:
        GenerationNotConfigured: No provider is set, and the caller is no test key.
        NotFound: The template or its version does not exist.
        ValidationFailed: A variable or the schema is invalid, or a limit is exceeded.
    """
    generator = generators.get(is_canned=tenant.is_sandbox)
    template: PromptTemplate | None = None
    messages = draft.messages or ()
    if draft.template is not None:
        template = require_template(tx, tenant.workspace_id, draft.template, version=draft.template_version)
        messages = render_prompt(template, draft.variables).messages
    _require_size(messages)
    defaults = template or draft
    max_tokens = _first(draft.max_tokens, defaults.max_tokens, min(DEFAULT_MAX_TOKENS, generators.max_tokens))
    if max_tokens > generators.max_tokens:
        raise ValidationFailed({"max_tokens": [f"must be at most {generators.max_tokens:,}, the limit of the operator"]})
    schema = draft.response_schema if draft.response_schema is not None else defaults.response_schema
    if schema is not None:
        ResponseSchema(schema)
    return Generation(
        id=id,
        workspace_id=tenant.workspace_id,
        key_id=tenant.key_id,
        mode=mode,
        status=GenerationStatus.QUEUED,
        is_canned=tenant.is_sandbox,
        model=draft.model or defaults.model or generator.model,
        template=None if template is None else template.slug,
        template_version=None if template is None else template.version,
        messages=messages,
        max_tokens=max_tokens,
        temperature=draft.temperature if draft.temperature is not None else defaults.temperature,
        response_schema=schema,
        metadata=draft.metadata,
        wants_score=draft.wants_score,
        created_at=now,
    )


def add_position(error: RookeryError, index: int) -> RookeryError:
    """Return *error* of the request at *index* of a batch, as a validation error that names its position."""
    place = f"requests.{index}"
    if isinstance(error, ValidationFailed):
        errors = error.field_errors
        return ValidationFailed({f"{place}.{field}": texts for field, texts in errors.items()})
    if isinstance(error, NotFound):
        return ValidationFailed({f"{place}.template": [error.message]})
    return error


def _require_size(messages: Sequence[ChatMessage]) -> None:
    length = sum(len(message.content) for message in messages)
    if length > MAX_PROMPT_CHARS:
        raise ValidationFailed({"messages": [f"must have at most {MAX_PROMPT_CHARS:,} characters together; they have {length:,}"]})
    if not any(message.content.strip() for message in messages):
        raise ValidationFailed({"messages": ["must not be blank"]})


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)
