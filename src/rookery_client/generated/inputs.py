"""
Objects in arguments.

Written by `make client` from the declarations of the operations. Change those, not this file.
"""

# fmt: off

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Required, TypedDict


class AudienceBody(TypedDict, total=False):
    """The receivers: `all`, or the subscribers with one of `tags` and the named ones. An empty object is an empty audience."""

    all: Literal[True] | None
    tags: Sequence[str]
    subscribers: Sequence[str]


class ChannelBody(TypedDict, total=False):
    """A channel: `webhook`, `ntfy` and `apprise` with `url`, `email` with `address`, `webpush` with `endpoint` and `keys`."""

    type: Required[Literal["webhook", "email", "ntfy", "webpush", "apprise"]]
    url: str | None
    address: str | None
    endpoint: str | None
    keys: PushKeysBody | None
    status: Literal["active", "invalid", "unsubscribed"] | None


class CriterionBody(TypedDict, total=False):
    """An acceptance criterion. A string is an unchecked criterion."""

    text: Required[str]
    checked: bool


class GenerationRequestBody(TypedDict, total=False):
    """A generation: exactly one of `prompt`, `messages` and `template`."""

    prompt: str | None
    messages: Sequence[MessageBody] | None
    template: str | None
    template_version: int | None
    variables: Mapping[str, object]
    model: str | None
    max_tokens: int | None
    temperature: float | None
    schema: Mapping[str, object] | None
    metadata: Mapping[str, object]
    score: bool


class HistoryMessageBody(TypedDict, total=False):
    """A message of the conversation before the prompt."""

    role: Required[Literal["user", "assistant", "system"]]
    content: Required[str]


class MessageBody(TypedDict, total=False):
    """A message of the conversation."""

    role: Required[Literal["system", "user", "assistant"]]
    content: Required[str]


class NotesBody(TypedDict, total=False):
    """
    A hand-off: the information for the next session, in at least one field. A list of one sentence can be sent as a string.
    """

    summary: str | None
    completed: str | Sequence[str] | None
    remaining: str | Sequence[str] | None
    blockers: str | Sequence[str] | None
    decisions: str | Sequence[str] | None
    next_steps: str | Sequence[str] | None
    refs: Mapping[str, object] | None


class OAuthBody(TypedDict, total=False):
    """OAuth settings of a client that was registered by hand."""

    type: Literal["oauth"]
    client_id: str | None
    client_secret: str | None
    scope: str | None


class PhaseBody(TypedDict, total=False):
    """A phase to create, with its tasks."""

    name: Required[str]
    description: str | None
    key: str | None
    depends_on: Sequence[str | int] | None
    acceptance_criteria: Sequence[str | CriterionBody] | None
    metadata: Mapping[str, object] | None
    tasks: Sequence[str | TaskBody] | None


class PlanOfTemplate(TypedDict, total=False):
    """The fields of the new plan. The default title is the name of the template."""

    title: str | None
    description: str | None
    metadata: Mapping[str, object] | None


class PushKeysBody(TypedDict, total=False):
    """The keys of a browser's push subscription."""

    p256dh: Required[str]
    auth: Required[str]


class RootBody(TypedDict, total=False):
    """A folder that the server may work in."""

    uri: Required[str]
    name: str | None


class ScheduleBody(TypedDict, total=False):
    """The time of a campaign."""

    at: Required[str]
    time_zone: str | None


class TaskBody(TypedDict, total=False):
    """A task to create. In a list, a string is the name of a task."""

    name: Required[str]
    description: str | None
    priority: int | None
    notes: str | None
    key: str | None
    depends_on: Sequence[str | int] | None
    acceptance_criteria: Sequence[str | CriterionBody] | None
    metadata: Mapping[str, object] | None


class TemplatePhase(TypedDict, total=False):
    """A phase of a template, in the format of a new plan. Its texts can contain placeholders. A string in `tasks` is a name."""

    name: Required[str]
    key: str | None
    description: str
    depends_on: Sequence[object]
    acceptance_criteria: Sequence[str | TemplateCriterion]
    metadata: Mapping[str, object]
    tasks: Sequence[str | TemplateTask]


class TemplateCriterion(TypedDict, total=False):
    """An acceptance criterion."""

    text: Required[str]


class TemplateTask(TypedDict, total=False):
    """A task of a template, in the format of a new plan. Its texts can contain placeholders."""

    name: Required[str]
    key: str | None
    description: str
    priority: object
    notes: str
    depends_on: Sequence[object]
    acceptance_criteria: Sequence[str | TemplateCriterion]
    metadata: Mapping[str, object]


class TokensBody(TypedDict, total=False):
    """The number of model tokens used."""

    input: int
    output: int


class ToolRulesBody(TypedDict, total=False):
    """Rules for the server's tools. Patterns are globs of tool names."""

    allow: Sequence[str] | None
    deny: Sequence[str]
    timeouts: Mapping[str, float]
    cache_s: Mapping[str, float]
