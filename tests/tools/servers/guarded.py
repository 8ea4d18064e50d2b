"""
An MCP server behind an OAuth authorisation server, both in this process and of the standard library alone: `guarded.py OPTIONS`.

Prints its port. `/mcp` is Streamable HTTP of the handshake era, `/sse` the older kind; both want a token of `/token`, unless the
option `open` is set. The authorisation server checks what RFC 6749, 7636, 7591, 8707 and 9207 ask for: a wrong verifier, redirect
address, client or resource is refused, a code works once, and so does a refresh token. Consent is given by opening `/authorize`.

`POST /control` with a JSON object changes the options while it runs, and answers what was counted. `revoke` ends all access tokens,
`revoke_refresh` all refresh tokens, `drop` all sessions and streams.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import queue
import sys
import threading
import time
import uuid
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast
from urllib.parse import parse_qs, parse_qsl, unquote, urlencode, urlsplit

Json = dict[str, object]

OPTIONS: Json = {
    "port": 0,
    "open": False,  # /mcp and /sse want no token
    "registers": True,  # has a registration endpoint
    "documents": False,  # takes the address of a client's description as its id
    "methods": ["S256"],
    "names_issuer": True,  # RFC 9207
    "described": True,  # RFC 9728; else everything is where MCP had it in 2025-03
    "expires_in": 3600,
    "rotates": True,  # a refresh token works once
    "refuses": "",  # the error of /authorize
    "resource": "",  # what /mcp says it is
    "issuer": "",  # what the authorisation server calls itself
    "packed": "",  # how answers of /mcp are packed: gzip, deflate, raw, br
    "redirect": "",  # where /mcp redirects to
    "token_status": 0,  # what /token answers instead
    "token": "",  # the one access token that there is
    "closed": False,  # /mcp and /sse take no token
    "endpoint": "",  # where /sse says to write to
    "metadata": "",  # where /mcp says that it is described
    "holds": False,  # a renewal waits until this is false
    "forgets_with_400": False,  # how a session that is not known is told
    "client": {},  # registered by hand: id, secret
}
COUNTS: dict[str, int] = {"registered": 0, "granted": 0, "renewed": 0, "held": 0, "refused": 0, "calls": 0, "sessions": 0}
CLIENTS: dict[str, Json] = {}
CODES: dict[str, dict[str, str]] = {}
ACCESS: dict[str, float] = {}
REFRESH: dict[str, str] = {}
SESSIONS: set[str] = set()
STREAMS: dict[str, queue.Queue[bytes | None]] = {}
SEEN: list[dict[str, str]] = []
LOCK = threading.Lock()
ANY: Json = {"type": "object", "properties": {}}
TOOLS: list[Json] = [
    {"name": "headers", "inputSchema": ANY, "annotations": {"readOnlyHint": True}},
    {"name": "write", "inputSchema": ANY},
    {"name": "large", "inputSchema": {"type": "object", "properties": {"size": {"type": "integer"}}}},
    {"name": "forbidden", "inputSchema": ANY},
]


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    @property
    def here(self) -> str:
        """The address of this server."""
        return f"http://127.0.0.1:{cast('tuple[str, int]', self.server.server_address)[1]}"

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/authorize":
            return self._authorize(dict(parse_qsl(parts.query)))
        if parts.path.startswith("/.well-known/oauth-protected-resource"):
            return self._describe_resource(parts.path)
        if parts.path == "/.well-known/oauth-authorization-server":
            return self._describe_authority()
        if parts.path == "/seen":
            return self._json(SEEN)
        if parts.path == "/sse":
            return self._stream()
        return self._send(405 if parts.path == "/mcp" else 404)

    def do_DELETE(self) -> None:
        SESSIONS.discard(self.headers.get("mcp-session-id", ""))
        self._send(200)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        parts = urlsplit(self.path)
        if parts.path == "/control":
            return self._control(cast("Json", json.loads(body)))
        if parts.path == "/register":
            return self._register(cast("Json", json.loads(body)))
        if parts.path == "/token":
            return self._token(dict(parse_qsl(body.decode())))
        if parts.path == "/elsewhere":
            SEEN.append({name.lower(): value for name, value in self.headers.items()})
            return self._send(200)
        if parts.path in {"/mcp", "/messages"}:
            return self._asked(cast("Json", json.loads(body)), parse_qs(parts.query).get("session", [""])[0])
        return self._send(404)

    # The tool server.

    def _asked(self, message: Json, session: str) -> None:
        if OPTIONS["redirect"]:
            return self._send(307, headers={"location": str(OPTIONS["redirect"])})
        if not self._may():
            return None
        if session:
            stream = STREAMS.get(session)
            if stream is None:
                return self._send(404)
            self._send(202)
            if "id" in message:
                stream.put(json.dumps(self._answer(message)[1]).encode())
            return None
        if "id" not in message:
            return self._send(202)
        status, answer, headers = self._answered(message)
        return self._packed(status, json.dumps(answer).encode(), headers)

    def _may(self) -> bool:
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        if OPTIONS["open"] or (scheme == "Bearer" and ACCESS.get(token, 0) > time.time() and not OPTIONS["closed"]):
            return True
        COUNTS["refused"] += 1
        place = OPTIONS["metadata"] or f"{self.here}/.well-known/oauth-protected-resource/mcp"
        said = f'Bearer resource_metadata="{place}"' if OPTIONS["described"] else "Bearer"
        self._send(401, headers={"www-authenticate": said})
        return False

    def _answered(self, message: Json) -> tuple[int, Json, dict[str, str]]:
        """Answer within a session."""
        session = self.headers.get("mcp-session-id", "")
        if message["method"] == "initialize":
            COUNTS["sessions"] += 1
            session = uuid.uuid4().hex
            SESSIONS.add(session)
            status, answer = self._answer(message)
            return status, answer, {"mcp-session-id": session}
        if message["method"] not in {"server/discover", "ping"} and session not in SESSIONS:
            status, number = (400, -32000) if OPTIONS["forgets_with_400"] else (404, -32001)
            error: Json = {"code": number, "message": "Bad Request: No valid session ID provided"}
            return status, {"jsonrpc": "2.0", "id": None, "error": error}, {}
        status, answer = self._answer(message)
        return status, answer, {}

    def _answer(self, message: Json) -> tuple[int, Json]:
        method = message["method"]
        if method == "initialize":
            info = {"name": "guarded", "version": "1"}
            result: Json = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "resources": {}}, "serverInfo": info}
        elif method == "tools/list":
            result = {"tools": TOOLS}
        elif method == "resources/list":
            result = {"resources": [{"uri": "docs://mine", "name": "Our secret plans"}]}
        elif method == "resources/templates/list":
            result = {"resourceTemplates": []}
        elif method == "resources/read":
            result = {"contents": [{"uri": "docs://mine", "text": "It is a plan."}]}
        elif method == "ping":
            result = {}
        elif method == "tools/call":
            params = cast("Json", message["params"])
            if params["name"] == "forbidden":
                return 403, {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32003, "message": "not for you"}}
            COUNTS["calls"] += 1
            size = cast("int", cast("Json", params.get("arguments") or {}).get("size", 0))
            text = "x" * size if size else json.dumps({name.lower(): value for name, value in self.headers.items()})
            result = {"content": [{"type": "text", "text": text}]}
        else:
            return 200, {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "unknown method"}}
        return 200, {"jsonrpc": "2.0", "id": message["id"], "result": result}

    def _stream(self) -> None:
        if not self._may():
            return
        session, stream = uuid.uuid4().hex, queue.Queue[bytes | None]()
        STREAMS[session] = stream
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        try:
            place = OPTIONS["endpoint"] or f"/messages?session={session}"
            self.wfile.write(f"event: endpoint\ndata: {place}\n\n".encode())
            self.wfile.flush()
            while (data := stream.get()) is not None:
                self.wfile.write(b"event: message\ndata: " + data + b"\n\n")
                self.wfile.flush()
        except OSError:
            pass
        finally:
            del STREAMS[session]
            self.close_connection = True

    # The authorisation server.

    def _describe_resource(self, path: str) -> None:
        if not OPTIONS["described"] or not path.endswith("/mcp"):
            return self._send(404)
        issuer = str(OPTIONS["issuer"] or self.here)
        return self._json({"resource": OPTIONS["resource"] or f"{self.here}/mcp", "authorization_servers": [self.here], "note": issuer})

    def _describe_authority(self) -> None:
        if not OPTIONS["described"]:
            return self._send(404)
        said: Json = {
            "issuer": OPTIONS["issuer"] or self.here,
            "authorization_endpoint": f"{self.here}/authorize",
            "token_endpoint": f"{self.here}/token",
            "scopes_supported": ["read", "write"],
            "code_challenge_methods_supported": OPTIONS["methods"],
            "authorization_response_iss_parameter_supported": OPTIONS["names_issuer"],
            "client_id_metadata_document_supported": OPTIONS["documents"],
        }
        if OPTIONS["registers"]:
            said["registration_endpoint"] = f"{self.here}/register"
        return self._json(said)

    def _register(self, wish: Json) -> None:
        if not OPTIONS["registers"]:
            return self._send(404)
        COUNTS["registered"] += 1
        client: Json = {**wish, "client_id": uuid.uuid4().hex}
        if wish.get("token_endpoint_auth_method") != "none":
            client |= {"client_secret": uuid.uuid4().hex, "token_endpoint_auth_method": "client_secret_post"}
        CLIENTS[str(client["client_id"])] = client
        return self._json(client, status=201)

    def _authorize(self, asked: dict[str, str]) -> None:
        client = self._client(asked.get("client_id", ""))
        redirects = cast("list[str]", (client or {}).get("redirect_uris") or [asked.get("redirect_uri")])
        if client is None or asked.get("redirect_uri") not in redirects or asked.get("code_challenge_method") != "S256":
            return self._send(400)
        if OPTIONS["described"] and asked.get("resource") != f"{self.here}/mcp":
            return self._send(400)
        answer = {"state": asked.get("state", "")}
        if OPTIONS["refuses"]:
            answer["error"] = str(OPTIONS["refuses"])
        else:
            code = uuid.uuid4().hex
            CODES[code] = asked
            answer["code"] = code
        if OPTIONS["names_issuer"]:
            answer["iss"] = self.here
        return self._send(302, headers={"location": f"{asked['redirect_uri']}?{urlencode(answer)}"})

    def _client(self, client_id: str) -> Json | None:
        by_hand = cast("dict[str, str]", OPTIONS["client"])
        if by_hand and client_id == by_hand["id"]:
            return {"client_id": client_id, "client_secret": by_hand.get("secret")}
        if OPTIONS["documents"] and client_id.startswith("https://"):
            return {"client_id": client_id}
        return CLIENTS.get(client_id)

    def _token(self, form: dict[str, str]) -> None:
        if OPTIONS["token_status"]:
            return self._send(cast("int", OPTIONS["token_status"]))
        client_id, secret = form.get("client_id", ""), form.get("client_secret")
        scheme, _, basic = self.headers.get("authorization", "").partition(" ")
        if scheme == "Basic":
            client_id, secret = (unquote(part) for part in base64.b64decode(basic).decode().split(":"))
        client = self._client(client_id)
        if client is None or client.get("client_secret") != secret:
            return self._json({"error": "invalid_client"}, status=401)
        if form["grant_type"] == "refresh_token":
            COUNTS["held"] += 1
            while OPTIONS["holds"]:
                time.sleep(0.01)
        with LOCK:
            return self._grant(form, client_id)

    def _grant(self, form: dict[str, str], client_id: str) -> None:
        if form["grant_type"] == "refresh_token":
            token = form["refresh_token"]
            if REFRESH.get(token) != client_id:
                return self._json({"error": "invalid_grant", "error_description": "unknown refresh token"}, status=400)
            if OPTIONS["rotates"]:
                del REFRESH[token]
            COUNTS["renewed"] += 1
        else:
            asked = CODES.pop(form["code"], {})
            challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
            same = all(asked.get(name) == form.get(name) for name in ("redirect_uri", "resource"))
            if asked.get("code_challenge") != challenge or asked.get("client_id") != client_id or not same:
                return self._json({"error": "invalid_grant", "error_description": "not that code"}, status=400)
            COUNTS["granted"] += 1
        access, refresh, lives_s = str(OPTIONS["token"] or uuid.uuid4().hex), uuid.uuid4().hex, cast("int", OPTIONS["expires_in"])
        ACCESS[access] = time.time() + min(lives_s, 10**9)
        REFRESH[refresh] = client_id
        return self._json({"access_token": access, "token_type": "bearer", "expires_in": lives_s, "refresh_token": refresh})

    def _control(self, wish: Json) -> None:
        if wish.pop("revoke", None):
            ACCESS.clear()
        if wish.pop("revoke_refresh", None):
            REFRESH.clear()
        if wish.pop("drop", None):
            SESSIONS.clear()
            for stream in list(STREAMS.values()):
                stream.put(None)
        OPTIONS.update(wish)
        self._json(COUNTS)

    # How.

    def _packed(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        how = str(OPTIONS["packed"])
        if how:
            bare = zlib.compressobj(wbits=-zlib.MAX_WBITS)
            packs = {"gzip": gzip.compress(body), "deflate": zlib.compress(body), "raw": bare.compress(body) + bare.flush(), "br": body}
            body = packs[how]
            headers = {**headers, "content-encoding": "deflate" if how == "raw" else how}
        self._send(status, body, headers={**headers, "content-type": "application/json"})

    def _json(self, value: object, status: int = 200) -> None:
        self._send(status, json.dumps(value).encode(), headers={"content-type": "application/json"})

    def _send(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    """A server with a listen backlog for the connections of a gateway."""

    request_queue_size = 256


if __name__ == "__main__":
    OPTIONS.update(cast("Json", json.loads(sys.argv[1] if len(sys.argv) > 1 else "{}")))
    server = Server(("127.0.0.1", cast("int", OPTIONS["port"])), Handler)
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()
