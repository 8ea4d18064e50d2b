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

    all: bool | None
    """Only `true`."""
    tags: Sequence[str]
    subscribers: Sequence[str]
    """Ids or external ids."""


class ChannelBody(TypedDict, total=False):
    """A channel: `webhook`, `ntfy` and `apprise` with `url`, `email` with `address`, `webpush` with `endpoint` and `keys`."""

    type: Required[Literal["webhook", "email", "ntfy", "webpush", "apprise"]]
    status: Literal["active", "invalid", "unsubscribed"] | None
    """Default: active, or the status of the same address."""
    url: str | None
    address: str | None
    endpoint: str | None
    expirationTime: float | None
    """When a push subscription ends, in milliseconds since 1970, as browsers give it. Default: it does not."""
    keys: PushKeysBody | None


class CriterionBody(TypedDict, total=False):
    """An acceptance criterion. A string is an unchecked criterion."""

    text: Required[str]
    checked: bool
    """Default: `false`."""


class GenerationRequestBody(TypedDict, total=False):
    """A generation: exactly one of `prompt`, `messages` and `template`."""

    messages: Sequence[MessageBody] | None
    """The conversation. The last message is usually the user's."""
    template: str | None
    """The name of the template in URLs: lower-case letters, digits and hyphens."""
    template_version: int | None
    """A version of the template. Default: the current one."""
    variables: Mapping[str, object]
    """Values by variable name. Variables with a default can be omitted."""
    model: str | None
    """The model, by its name at the provider."""
    max_tokens: int | None
    """Maximum tokens of the answer. Default: 1,024."""
    temperature: float | None
    """0 for the most likely words, higher for more variety."""
    schema: Mapping[str, object] | None
    """A JSON schema. The answer is JSON that matches it."""
    metadata: Mapping[str, object]
    """Your own data about the request, as JSON of at most 16 KiB."""
    score: bool
    """Score the output as the answer to the messages, offline. Needs the scope score:read. Default: `false`."""
    prompt: str | None
    """The prompt: one message of the user."""


class HistoryMessageBody(TypedDict, total=False):
    """A message of the conversation before the prompt."""

    role: Required[Literal["user", "assistant", "system"]]
    content: Required[str]


class MessageBody(TypedDict, total=False):
    """A message of the conversation."""

    role: Required[Literal["system", "user", "assistant"]]
    """The speaker of the message."""
    content: Required[str]
    """The text."""


class NotesBody(TypedDict, total=False):
    """
    A hand-off: the information for the next session, in at least one field. A list of one sentence can be sent as a string.
    """

    summary: str | None
    """The current state of the work."""
    completed: str | Sequence[str] | None
    """Finished work."""
    remaining: str | Sequence[str] | None
    """Unfinished work."""
    blockers: str | Sequence[str] | None
    """Obstacles."""
    decisions: str | Sequence[str] | None
    """Decisions and their reasons."""
    next_steps: str | Sequence[str] | None
    """The next steps, most important first."""
    refs: Mapping[str, object] | None
    """References such as branch, commit and files."""


class OAuthBody(TypedDict, total=False):
    """OAuth settings: a client that was registered by hand, and what to request."""

    type: Literal["oauth"]
    client_id: str | None
    client_secret: str | None
    """Refers to one of `secrets` as ${NAME}."""
    scope: str | Sequence[str] | None
    """The scopes to request; by default those that the server announces."""
    resource: str | None
    """
    The resource to request tokens for (RFC 8707): an absolute URI without a fragment. null: none is sent, as Entra ID requires.
    Omitted: the one that the server announces.
    """


class PhaseBody(TypedDict, total=False):
    """A phase to create, with its tasks."""

    name: Required[str]
    """The name, for people."""
    description: str | None
    """A text in Markdown."""
    acceptance_criteria: Sequence[str | CriterionBody] | None
    """Conditions that the result must meet, each as a text, or as an object with `checked`."""
    metadata: Mapping[str, object] | None
    """A JSON object of your own, at most 16 KiB."""
    key: str | None
    """A short name within this request, for use in depends_on."""
    depends_on: Sequence[str | int] | None
    """Phases that must be done first, by id, key, name or position in the plan."""
    tasks: Sequence[str | TaskBody] | None
    """The tasks, each as a name or an object."""


class PlanOfTemplate(TypedDict, total=False):
    """The fields of the new plan. The default title is the name of the template."""

    title: str | None
    description: str | None
    metadata: Mapping[str, object] | None


class PushKeysBody(TypedDict, total=False):
    """The keys of a browser's push subscription."""

    p256dh: Required[str]
    """The public key, base64url."""
    auth: Required[str]
    """The authentication secret, base64url."""


class RememberBody(TypedDict, total=False):
    """One memory to store. A null field counts as missing."""

    content: Required[str]
    """The text to remember."""
    type: str | None
    """observation by default."""
    org: str | None
    """The organisation namespace."""
    project: str | None
    """The project within the org."""
    tags: Sequence[str] | None
    """Converted to lower case; duplicates are removed."""
    metadata: Mapping[str, object] | None
    """
    A JSON object of your own, stored and returned unchanged. At most 16 KiB and 64 keys. Recall and search do not read it, but can
    filter by it.
    """
    confidence: float | None
    """The author's certainty, 0 to 1."""
    source: str | None
    """The origin of the memory."""
    expires_in: float | None
    """Hours until the memory expires and is deleted."""
    agent_id: str | None
    """The agent that the memory belongs to; the key's own by default."""
    session_id: str | None
    """The session that the memory belongs to."""
    memory_scope: Literal["project", "agent", "session", "shared"] | None
    """Visibility: the project, only the agent, the session, or the whole org (shared)."""
    supersedes_id: str | None
    """The id of a memory to replace; that memory is deleted."""
    dedupe: bool | None
    """Return an identical memory of the same space instead of storing another."""
    wait_ms: int | None
    """Maximum milliseconds to wait for indexing before the response."""


class RootBody(TypedDict, total=False):
    """A folder that the server may work in."""

    uri: Required[str]
    """A file URI; may refer to each of `secrets` as ${NAME}."""
    name: str | None


class ScheduleBody(TypedDict, total=False):
    """The time of a campaign."""

    at: Required[str]
    """A local time in `time_zone`, or a time with an offset."""
    time_zone: str | None
    """A name of the IANA database. Default: UTC."""


class ScoreItemBody(TypedDict, total=False):
    """A text to score: `text`, or the `response` of an assistant. Both names mean the same."""

    text: str | None
    """The text, of at most 100,000 characters."""
    response: str | None
    """The answer of an assistant, in place of `text`."""
    prompt: str | None
    """The user's message that the text answers."""
    history: Sequence[HistoryMessageBody] | None
    """The messages before the prompt, oldest first. A last message of the user is the prompt."""
    counterpart: str | None
    """The answer to the same question with the opposite framing."""


class TaskBody(TypedDict, total=False):
    """A task to create. In a list, a string is the name of a task."""

    name: Required[str]
    """The name, for people."""
    description: str | None
    """A text in Markdown."""
    acceptance_criteria: Sequence[str | CriterionBody] | None
    """Conditions that the result must meet, each as a text, or as an object with `checked`."""
    metadata: Mapping[str, object] | None
    """A JSON object of your own, at most 16 KiB."""
    priority: int | None
    """From 0, the most urgent, to 4, the least urgent."""
    notes: str | None
    """A text in Markdown."""
    key: str | None
    """A short name within this request, for use in depends_on."""
    depends_on: Sequence[str | int] | None
    """Tasks of the plan that must be done first, by id, key, name or position in the phase."""


class TemplatePhase(TypedDict, total=False):
    """A phase of a template, in the format of a new plan. Its texts can contain placeholders. A string in `tasks` is a name."""

    name: Required[str]
    key: str | None
    """A short name for use in `depends_on`."""
    description: str
    """Default: `""`."""
    depends_on: Sequence[object]
    acceptance_criteria: Sequence[str | TemplateCriterion]
    """Conditions that finished work meets."""
    metadata: Mapping[str, object]
    tasks: Sequence[str | TemplateTask]


class TemplateCriterion(TypedDict, total=False):
    """An acceptance criterion."""

    text: Required[str]


class TemplateTask(TypedDict, total=False):
    """A task of a template, in the format of a new plan. Its texts can contain placeholders."""

    name: Required[str]
    key: str | None
    """A short name for use in `depends_on`."""
    description: str
    """Default: `""`."""
    priority: object
    """From 0, the most urgent, to 4, the least urgent; or a placeholder. Default: `2`."""
    notes: str
    """Default: `""`."""
    depends_on: Sequence[object]
    acceptance_criteria: Sequence[str | TemplateCriterion]
    """Conditions that finished work meets."""
    metadata: Mapping[str, object]


class TokensBody(TypedDict, total=False):
    """The model tokens used since the last report. The report of usage adds them up by agent and model."""

    input: int
    """Input tokens, with those from a cache. Default: `0`."""
    output: int
    """Output tokens, with those of reasoning. Default: `0`."""
    cached_input: int
    """The part of `input` that came from a cache. Default: `0`."""
    model: str | None
    """The model that used them."""
    cost: float | None
    """The cost, if you know it. Default: the price of the model."""
    currency: str | None
    """The currency of the cost: that of the server."""


class ToolRulesBody(TypedDict, total=False):
    """Rules for the server's tools. Patterns are globs of tool names."""

    allow: Sequence[str] | None
    """Allowed tools; null: all."""
    deny: Sequence[str]
    """Tools that are not offered."""
    timeouts: Mapping[str, float]
    """Time-outs in seconds, by pattern."""
    cache_s: Mapping[str, float]
    """Seconds for which results of read-only tools are cached, by pattern."""


__all__ = [
    "AudienceBody",
    "ChannelBody",
    "CriterionBody",
    "GenerationRequestBody",
    "HistoryMessageBody",
    "MessageBody",
    "NotesBody",
    "OAuthBody",
    "PhaseBody",
    "PlanOfTemplate",
    "PushKeysBody",
    "RememberBody",
    "RootBody",
    "ScheduleBody",
    "ScoreItemBody",
    "TaskBody",
    "TemplateCriterion",
    "TemplatePhase",
    "TemplateTask",
    "TokensBody",
    "ToolRulesBody",
]
