"""Request and response models of the hooks of coding agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from rookery.agents.models.agent_hooks import HookPayload, HookProject
from rookery.agents.models.sessions import require_printable
from rookery.coding_agents.hook_declarations import MAX_PROJECT_CHARS
from rookery.kernel.schema import OMITTED_IF_NONE, OmittedIfNone, QueryModel, RequestModel, ResponseModel
from rookery.kernel.unset import UNSET

_Name = Annotated[str, Field(min_length=1), AfterValidator(require_printable)]
_ID = "[0-9a-f]{32}"


class HookBody(RequestModel):
    """
    The payload of the client, with its own fields. No field is required. Unknown fields and fields of another type are ignored.

    Other names that clients use are read too: `sessionId` and `conversation_id`, `generation_id` and `prompt_id` for the turn, `text` and
    `prompt_response` for the message.
    """

    model_config = ConfigDict(extra="allow")

    session_id: Annotated[object, Field(description="The client's id of the session. Without it, nothing happens.")] | UNSET = UNSET
    turn_id: Annotated[object, Field(description="The client's id of the turn, if it has one.")] | UNSET = UNSET
    source: Annotated[object, Field(description="The reason of a start, such as startup, resume or compact.")] | UNSET = UNSET
    prompt: Annotated[object, Field(description="The prompt of the user.")] | UNSET = UNSET
    last_assistant_message: Annotated[object, Field(description="The last message of the agent in the turn that ended.")] | UNSET = UNSET

    def to_payload(self) -> HookPayload:
        return {name: value for name, value in self if value is not UNSET}


class HookQuery(QueryModel):
    """The project in which the agent works, as `rookery hook` finds it. Without it, it is that of the session's start."""

    org: Annotated[_Name, Field(max_length=MAX_PROJECT_CHARS["org"], description="The org of the project.")] | None = None
    project: Annotated[_Name, Field(max_length=MAX_PROJECT_CHARS["project"], description="The project of the session.")] | None = None
    repository: (
        Annotated[
            str,
            Field(
                max_length=MAX_PROJECT_CHARS["repository"],
                pattern=f"^{_ID}(,{_ID}){{0,3}}$",
                description="The ids of the remotes of the repository, separated by commas. The first identifies the repository.",
            ),
        ]
        | None
    ) = None
    folder: (
        Annotated[str, Field(pattern=f"^{_ID}$", description="The id of its folder, which identifies a repository without remotes.")] | None
    ) = None
    full_name: (
        Annotated[
            _Name,
            Field(
                max_length=MAX_PROJECT_CHARS["full_name"],
                description="The name of the repository with its owner. It is the project if another repository has the name `project`.",
            ),
        ]
        | None
    ) = None
    is_named: Annotated[bool, Field(description="True: `.rookery.toml` names the project, so the name stays as it is.")] = False
    branch: Annotated[str, Field(max_length=MAX_PROJECT_CHARS["branch"], description="The branch of the repository.")] | None = None
    commit: Annotated[str, Field(max_length=MAX_PROJECT_CHARS["commit"], description="The subject of the last commit.")] | None = None

    def to_project(self) -> HookProject | None:
        """Return the project, or None if the request does not name it."""
        if self.project is None:
            return None
        return HookProject(
            project=self.project,
            org=self.org,
            remotes=() if self.repository is None else tuple(self.repository.split(",")),
            folder=self.folder,
            full_name=self.full_name,
            is_named=self.is_named,
            branch=self.branch,
            commit=self.commit,
        )


class HookSpecificOutput(ResponseModel):
    """The part of an answer that adds a text to the conversation, for all clients but Cursor and Copilot CLI."""

    hookEventName: Annotated[str, Field(description="The client's name of the event.")]  # noqa: N815 - the clients' name
    additionalContext: Annotated[str, Field(description="The text.")]  # noqa: N815 - the clients' name


class HookResponse(ResponseModel):
    """The answer in the schema of the client. An empty object changes nothing. Cursor gets the text as `additional_context`."""

    hookSpecificOutput: Annotated[HookSpecificOutput | None, OMITTED_IF_NONE] = None  # noqa: N815 - the clients' name
    additionalContext: Annotated[OmittedIfNone, Field(description="The text, for Copilot CLI.")] = None  # noqa: N815 - the client's name
    additional_context: SkipJsonSchema[OmittedIfNone] = None  # clients in Go cannot have both: the OpenAPI document names it in words


def to_hook_response(answer: Mapping[str, object]) -> HookResponse:
    """Return the response for the answer of a client."""
    return HookResponse.model_validate(answer)
