"""Webhooks and events."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rookery_client import verify_webhook
from tests.contract.statements import Api, assert_error, statement, statement_per_value, statements_about_fields
from tests.deadlines import HANG_S

HOOKS = "/api/v1/webhooks"


@dataclass(slots=True)
class Receiver:
    """A server that stores the requests it gets."""

    url: str = ""
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list[tuple[dict[str, str], bytes]])

    def wait(self, number: int = 1) -> list[tuple[dict[str, str], bytes]]:
        """Return the requests once there are *number*."""
        deadline = time.monotonic() + HANG_S
        while len(self.requests) < number:
            assert time.monotonic() < deadline, f"{len(self.requests)} deliveries, expected {number}"
            time.sleep(0.02)
        return self.requests


@contextmanager
def run_receiver() -> Generator[Receiver]:
    """Serve on a free port until the block ends."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.requests.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_port}/hook"
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def create_endpoint(api: Api, url: str = "http://127.0.0.1:9/hook", **fields: object) -> dict[str, Any]:
    """Create an endpoint and return the response."""
    response = api.post(HOOKS, {"url": url, "events": ["memory.stored"]} | fields)
    assert response.status_code == 201, response.text
    return response.json()


statements_about_fields(
    "A webhook endpoint", {"url": "string", "events": "array", "secret": "string", "workspace_id": "integer"}, create_endpoint
)


def deliver(api: Api, **fields: object) -> tuple[dict[str, str], bytes, str]:
    """Trigger a delivery; return its headers and body, and the secret that signed it."""
    with run_receiver() as hook:
        endpoint = create_endpoint(api, hook.url, **fields)
        api.remember("Announce this.")
        headers, body = hook.wait()[0]
        api.send("DELETE", f"{HOOKS}/{endpoint['id']}")
        return headers, body, endpoint["secret"]


@statement("A delivery is signed with sha256 in X-Webhook-Signature.")
def _(api: Api) -> None:
    headers, body, secret = deliver(api)
    assert headers["x-webhook-signature"] == "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


@statement("A receiver can verify the raw payload.")
def _(api: Api) -> None:
    headers, body, secret = deliver(api)
    assert verify_webhook(body, headers, secret)


statements_about_fields(
    "The body of a delivery",
    {"id": "string", "type": "string", "created_at": "time", "workspace_id": "integer", "data": "object"},
    lambda api: json.loads(deliver(api)[1]),
)


@statement("Memories are sent without content, unless the endpoint includes it.")
def _(api: Api) -> None:
    assert b"Announce this." not in deliver(api)[1]
    assert b"Announce this." in deliver(api, include_content=True)[1]


@statement("A delivery has the three headers of Standard Webhooks.")
def _(api: Api) -> None:
    assert deliver(api)[0].keys() >= {"webhook-id", "webhook-timestamp", "webhook-signature"}


@statement("A secret may be set; otherwise it is generated with the prefix whsec_ and shown once.")
def _(api: Api) -> None:
    assert create_endpoint(api, secret="a-secret-of-sixteen-or-more")["secret"] == "a-secret-of-sixteen-or-more"
    endpoint = create_endpoint(api)
    assert endpoint["secret"].startswith("whsec_")
    assert endpoint["secret"] not in api.get(f"{HOOKS}/{endpoint['id']}").text


@statement("An unknown event is rejected.")
def _(api: Api) -> None:
    assert_error(api.post(HOOKS, {"url": "http://127.0.0.1:9/", "events": ["no.such"]}), 422)


@statement("Endpoints are listed, shown, changed and deleted.")
def _(api: Api) -> None:
    endpoint = create_endpoint(api)
    path = f"{HOOKS}/{endpoint['id']}"
    assert api.send("PATCH", path, {"events": ["memory.*"]}).json()["events"] == ["memory.*"]
    assert endpoint["id"] in api.get(f"{HOOKS}?per_page=100").text
    assert api.send("DELETE", path).status_code == 204
    assert_error(api.get(path), 404)


@statement("A secret can be rotated.")
def _(api: Api) -> None:
    endpoint = create_endpoint(api)
    assert api.post(f"{HOOKS}/{endpoint['id']}/rotate-secret").json()["secret"] != endpoint["secret"]


@statement("A test event is sent to the endpoint; its delivery is in the log, and can be sent again.")
def _(api: Api) -> None:
    with run_receiver() as hook:
        endpoint = create_endpoint(api, hook.url)
        path = f"{HOOKS}/{endpoint['id']}"
        assert api.post(f"{path}/test").status_code == 202
        hook.wait()
        deadline = time.monotonic() + HANG_S
        while not (rows := api.get(f"{path}/deliveries").json()["data"]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert api.post(f"{path}/deliveries/{rows[0]['id']}/resend").status_code == 202
        hook.wait(2)
        assert api.post(f"{path}/resend-failed").status_code == 202
        api.send("DELETE", path)


def has_event(api: Api, name: str) -> None:
    """Assert that the catalogue has an event."""
    assert f'"{name}"' in api.get("/api/v1/events?per_page=100").text


statement_per_value(
    "The catalogue has {}.",
    [
        *("memory.stored", "memory.superseded", "memory.deleted", "memory.archived", "memory.reindexed", "tool.called", "tool.failed"),
        *(
            "server.online",
            "server.offline",
            "key.created",
            "key.rotated",
            "key.revoked",
            "key.expired",
            "webhook.disabled",
            "webhook.test",
        ),
    ],
    has_event,
)


@statement("A stored memory raises memory.stored.")
def _(api: Api) -> None:
    assert json.loads(deliver(api)[1])["type"] == "memory.stored"


@statement("A finished re-index raises memory.reindexed.")
def _(api: Api) -> None:
    with run_receiver() as hook:
        endpoint = create_endpoint(api, hook.url, events=["memory.reindexed"])
        org = api.name("org")
        api.remember(org=org)
        api.run("brain:reindex", "--org", org)
        assert json.loads(hook.wait()[0][1])["type"] == "memory.reindexed"
        api.send("DELETE", f"{HOOKS}/{endpoint['id']}")


@statement("An address that is not allowed is rejected at the creation of the endpoint.")
def _(api: Api) -> None:
    assert_error(api.post(HOOKS, {"url": "http://169.254.169.254/latest", "events": ["*"]}), 422)
    assert_error(api.post(HOOKS, {"url": "http://10.0.0.1/", "events": ["*"]}), 422)
