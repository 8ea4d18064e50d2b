"""The MCP tools of notifications: their descriptions and published arguments."""

from __future__ import annotations

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
        "q": "",
        "test_of": "Only tests of this campaign.",
        "per_page": "",
        "cursor": "",
    },
    schemas={"per_page": _INTEGER},
    items="campaigns",
)
NOTIFICATION_TEST = ToolDeclaration(
    name="notification_test",
    description=("Send the message of a campaign to named subscribers now, as a test. `campaign_list` with `test_of` shows its result."),
    effect="creates",
    arguments={"campaign": "", "subscribers": "Ids or external ids, at most 20.", "channels": "Default: all."},
)
