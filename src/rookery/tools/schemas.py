"""The wire shapes of tool servers: the names of spec 2.1, and ours beside them (D-08)."""

from __future__ import annotations

from pydantic import Field, RootModel

from rookery.kernel.wire import Answer, Body, Moment


class ToolCallRequest(Body):
    """A call of one tool."""

    server: str = Field(min_length=1, max_length=64)
    tool: str = Field(min_length=1, max_length=128)
    arguments: dict[str, object] | None = None


class ToolArguments(RootModel[dict[str, object]]):
    """The bare arguments of a call whose server and tool the path names."""


class PromptRequest(Body):
    """The arguments of a prompt."""

    arguments: dict[str, str] = Field(default_factory=dict)


class ServerSummary(Answer):
    """One server in a list."""

    id: str
    name: str
    tagline: str
    status: str
    health: str
    tool_count: int
    resource_count: int
    icon: str | None = None
    use_when: str | None = None
    related_servers: list[str] = Field(default_factory=list[str])


class ServerList(Answer):
    """Every server that the key sees."""

    servers: list[ServerSummary]
    count: int


class ServerAnswer(ServerSummary):
    """One server with what it offers."""

    description: str
    instructions: str | None = None
    last_error: str | None = None
    seen_at: Moment | None = None
    tools: list[dict[str, object]]
    resources: list[dict[str, object]]


class ToolList(Answer):
    """The tools of one server."""

    server: str
    tools: list[dict[str, object]]
    count: int


class ResourceList(Answer):
    """The resources of one server."""

    server: str
    resources: list[dict[str, object]]
    count: int


class TemplateList(Answer):
    """The templates of resources of one server."""

    server: str
    resource_templates: list[dict[str, object]]
    count: int


class PromptList(Answer):
    """The prompts of one server."""

    server: str
    prompts: list[dict[str, object]]
    count: int


class PromptAnswer(Answer):
    """One prompt, filled in."""

    server: str
    prompt: str
    description: str | None = None
    messages: list[object]


class ToolCallResponse(Answer):
    """What a call came to; of a failure also code and error."""

    success: bool
    server: str
    tool: str
    result: dict[str, object] | None = None
    duration_ms: int
    error: str | None = None
    code: str | None = None


class ResourceResponse(Answer):
    """One resource's content: {contents: [{uri, mimeType, text or blob}]}."""

    uri: str
    content: dict[str, object]
