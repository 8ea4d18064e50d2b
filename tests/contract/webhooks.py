"""Webhooks and events: specification 2.4, 6.1, 6.2, and decisions D-80 to D-82."""

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
from tests.contract.statements import Api, refused, statement, statement_per_value, statements_about_fields

HOOKS = "/api/v1/webhooks"
DELIVERY_TIMEOUT_S = 15.0


@dataclass(slots=True)
class Receiver:
    """A server that stores the requests it gets."""

    url: str = ""
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list[tuple[dict[str, str], bytes]])

    def wait(self, number: int = 1) -> list[tuple[dict[str, str], bytes]]:
        """Return the requests once there are *number*."""
        deadline = time.monotonic() + DELIVERY_TIMEOUT_S
        while len(self.requests) < number:
            assert time.monotonic() < deadline, f"{len(self.requests)} deliveries, expected {number}"
            time.sleep(0.02)
        return self.requests


@contextmanager
def receiver() -> Generator[Receiver]:
    """Serve on a free port until the block ends."""
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.requests.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}/hook"
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def endpoint(api: Api, url: str = "http://127.0.0.1:9/hook", **fields: object) -> dict[str, Any]:
    """Create an endpoint and return the answer."""
    answer = api.post(HOOKS, {"url": url, "events": ["memory.stored"]} | fields)
    assert answer.status_code == 201, answer.text
    return answer.json()


statements_about_fields(
    "spec 2.4", "A webhook endpoint", {"url": "string", "events": "array", "secret": "string", "workspace_id": "integer"}, endpoint
)


def delivered(api: Api, **fields: object) -> tuple[dict[str, str], bytes, str]:
    """Return the headers and body of a delivery, and the secret that signed it."""
    with receiver() as hook:
        made = endpoint(api, hook.url, **fields)
        api.remember("Announce this.")
        headers, body = hook.wait()[0]
        api.send("DELETE", f"{HOOKS}/{made['id']}")
        return headers, body, made["secret"]


@statement("spec 6.2", "A delivery is signed with sha256 in X-Webhook-Signature.")
def _(api: Api) -> None:
    headers, body, secret = delivered(api)
    assert headers["x-webhook-signature"] == "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


@statement("spec 6.2", "A receiver verifies the raw payload, and rejects a mismatch.")
def _(api: Api) -> None:
    headers, body, secret = delivered(api)
    assert verify_webhook(body, headers, secret)


statements_about_fields(
    "D-81",
    "The body of a delivery",
    {"id": "string", "type": "string", "created_at": "time", "workspace_id": "integer", "data": "object"},
    lambda api: json.loads(delivered(api)[1]),
)


@statement("D-81", "Memories come without content, unless the endpoint asks for it.")
def _(api: Api) -> None:
    assert b"Announce this." not in delivered(api)[1]
    assert b"Announce this." in delivered(api, include_content=True)[1]


@statement("D-81", "The three headers of Standard Webhooks are there too.")
def _(api: Api) -> None:
    assert delivered(api)[0].keys() >= {"webhook-id", "webhook-timestamp", "webhook-signature"}


@statement("D-80", "A secret may be given; otherwise it is whsec_ and shown once.")
def _(api: Api) -> None:
    assert endpoint(api, secret="a-secret-of-sixteen-or-more")["secret"] == "a-secret-of-sixteen-or-more"
    made = endpoint(api)
    assert made["secret"].startswith("whsec_")
    assert made["secret"] not in api.get(f"{HOOKS}/{made['id']}").text


@statement("D-80", "An unknown event is refused.")
def _(api: Api) -> None:
    refused(api.post(HOOKS, {"url": "http://127.0.0.1:9/", "events": ["no.such"]}), 422)


@statement("D-80", "Endpoints are listed, shown, changed and deleted.")
def _(api: Api) -> None:
    made = endpoint(api)
    path = f"{HOOKS}/{made['id']}"
    assert api.send("PATCH", path, {"events": ["memory.*"]}).json()["events"] == ["memory.*"]
    assert made["id"] in api.get(f"{HOOKS}?per_page=100").text
    assert api.send("DELETE", path).status_code == 204
    refused(api.get(path), 404)


@statement("D-80", "A secret is rotated.")
def _(api: Api) -> None:
    made = endpoint(api)
    assert api.post(f"{HOOKS}/{made['id']}/rotate-secret").json()["secret"] != made["secret"]


@statement("D-80", "A test event goes to the endpoint; its delivery is in the log, and can be sent again.")
def _(api: Api) -> None:
    with receiver() as hook:
        made = endpoint(api, hook.url)
        path = f"{HOOKS}/{made['id']}"
        assert api.post(f"{path}/test").status_code == 202
        hook.wait()
        deadline = time.monotonic() + DELIVERY_TIMEOUT_S
        while not (rows := api.get(f"{path}/deliveries").json()["data"]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert api.post(f"{path}/deliveries/{rows[0]['id']}/resend").status_code == 202
        hook.wait(2)
        assert api.post(f"{path}/resend-failed").status_code == 202
        api.send("DELETE", path)


def has_event(api: Api, name: str) -> None:
    """Check one value."""
    assert f'"{name}"' in api.get("/api/v1/events?per_page=100").text


statement_per_value(
    "D-80",
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


@statement("spec 6.1", "A stored memory raises memory.stored.")
def _(api: Api) -> None:
    assert json.loads(delivered(api)[1])["type"] == "memory.stored"


@statement("spec 6.1", "A finished re-index raises memory.reindexed.")
def _(api: Api) -> None:
    with receiver() as hook:
        made = endpoint(api, hook.url, events=["memory.reindexed"])
        org = api.name("org")
        api.remember(org=org)
        api.run("brain:reindex", "--org", org)
        assert json.loads(hook.wait()[0][1])["type"] == "memory.reindexed"
        api.send("DELETE", f"{HOOKS}/{made['id']}")


@statement("D-82", "An address that is not allowed is refused when the endpoint is created.")
def _(api: Api) -> None:
    refused(api.post(HOOKS, {"url": "http://169.254.169.254/latest", "events": ["*"]}), 422)
    refused(api.post(HOOKS, {"url": "http://10.0.0.1/", "events": ["*"]}), 422)
