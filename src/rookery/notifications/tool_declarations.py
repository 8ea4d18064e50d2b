"""The MCP tools of notifications: their descriptions and published arguments (D-92)."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from rookery.kernel.http.operation_tools import ServerDeclaration
from rookery.kernel.http.operations import JsonSchema, ToolDeclaration

SERVER = ServerDeclaration(
    id="notify",
    name="Notifications",
    tagline="Campaigns of notifications, and tests of them.",
    description=(
        "List campaigns with their statistics, and send the message of one to named subscribers. Nothing is sent to a whole audience: "
        "a person starts a campaign."
    ),
)

_INTEGER: JsonSchema = {"type": "integer"}

CAMPAIGN_LIST = ToolDeclaration(
    name="campaign_list",
    description="List campaigns with their status and statistics, newest first.",
    effect="reads",
    arguments={
        "status": "",
        "q": "A part of the name.",
        "test_of": "List the tests of this campaign instead.",
        "per_page": "At most 100.",
        "page": "",
    },
    schemas={"per_page": _INTEGER, "page": _INTEGER},
    items="campaigns",
)
NOTIFICATION_TEST = ToolDeclaration(
    name="notification_test",
    description=(
        "Send the message of a campaign to named subscribers now, whatever its status. Returns the test, a campaign of its own; "
        "`campaign_list` with `test_of` shows its result."
    ),
    effect="creates",
    arguments={"campaign": "The id of a campaign.", "subscribers": "Ids or external ids, at most 20.", "channels": "Default: all."},
)


def render_text(tool: str, output: Mapping[str, object]) -> str:
    """Return the output as JSON, which is short for these tools."""
    del tool
    return orjson.dumps(output).decode()
