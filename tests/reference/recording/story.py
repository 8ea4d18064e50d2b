"""The whole story: a server, its tool servers and receiver, and the parts in order."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path

from rookery.kernel.config import Settings
from rookery.kernel.secret import Secret
from rookery.reference.downgrade import Schema
from tests.chat_service import run_chat_service
from tests.conftest import FakeClock, run_instance
from tests.reference.recording import content, host, keys, memories, notifications, plans, scoring, sessions, tools, webhooks
from tests.reference.recording.normalizer import START
from tests.reference.recording.recorder import Recorder
from tests.tools.oauth_server import run_oauth_server
from tests.webhooks.receiver import run_receiver

PARTS: Mapping[str, Callable[[Recorder], Awaitable[None]]] = {
    "memories": memories.play,
    "plans": plans.play,
    "templates": plans.templates,
    "sessions": sessions.play,
    "content": content.play,
    "notifications": notifications.play,
    "tools": tools.play,
    "servers": tools.servers,
    "discovery": tools.discovery,
    "api-keys": keys.play,
    "agent-keys": keys.agents,
    "webhooks": webhooks.play,
    "scoring": scoring.play,
    "workspaces": keys.workspaces,
    "host": host.play,
}
"""The parts; each is a file of examples."""

UNRECORDED: Mapping[str, str] = {
    "GET /mcp": "a stream that ends with its client",
    "GET /mcp/{serverId}": "a stream that ends with its client",
    "DELETE /mcp": "ends a session of the older protocol, which begins with a POST of an initialize",
    "DELETE /mcp/{serverId}": "ends a session of the older protocol, which begins with a POST of an initialize",
    "POST /api/agent/notify/subscribers/import": "takes a file, whose formats the guide shows",
    "GET /notify/subscribe/{token}": "a page for people, whose address has a signed token",
    "POST /notify/subscribe/{token}": "sent by the script of that page",
    "GET /notify/unsubscribe/{token}": "a page for people, whose address has a signed token",
    "POST /notify/unsubscribe/{token}": "sent by the button of that page, or by a mail program",
}
"""Operations that the story leaves out, and why."""


async def record_story(data_dir: Path) -> dict[str, dict[str, Schema]]:
    """Play the story on a server in *data_dir*, and return the examples of each part."""
    settings = Settings(data_dir=data_dir, bcrypt_cost=4, min_free_disk_mb=0, egress_allow=("127.0.0.0/8",))
    library = {"command": sys.executable, "args": [str(Path(__file__).with_name("library.py"))], "tagline": "Where books stand."}
    settings.servers_file.write_text(json.dumps({"mcpServers": {"library": library}}))
    clock = FakeClock(START)
    with run_oauth_server() as upstream, run_chat_service() as provider:
        settings = replace(settings, generation=Secret(provider.url()), generation_prices=(("*", 1_000_000, 2_000_000),))
        async with run_receiver() as receiver, run_instance(settings, clock) as instance:
            parts: dict[str, dict[str, Schema]] = {}
            for name, play in PARTS.items():
                recorder = Recorder(instance=instance, clock=clock, upstream=f"{upstream.url}/mcp", receiver=receiver.url)
                await play(recorder)
                parts[name] = recorder.operations
    return parts
