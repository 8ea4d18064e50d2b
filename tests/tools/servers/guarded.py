"""
An MCP server behind an OAuth authorisation server, both in this process, standard library only: `guarded.py OPTIONS`.

Prints its port. `/mcp` is Streamable HTTP of the handshake era, `/sse` the older kind; both require a token of `/token`, unless the
option `open` is set. The authorisation server checks what RFC 6749, 7636, 7591, 8707 and 9207 require: a wrong verifier, redirect
address, client or resource is rejected, a code works once, and so does a refresh token. Consent is given by opening `/authorize`.

`POST /control` with a JSON object changes the options while it runs, and returns the counts. `revoke` ends all access tokens,
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
    "open": False,  # /mcp and /sse require no token
    "registers": True,  # has a registration endpoint
    "refuses_registration": {},  # the error of /register
    "documents": False,  # accepts the URL of a metadata document as client id
    "methods": ["S256"],
    "names_issuer": True,  # RFC 9207
    "described": True,  # RFC 9728; otherwise the fixed paths of MCP 2025-03-26
    "expires_in": 3600,
    "rotates": True,  # a refresh token works once
    "refuses": "",  # the error of /authorize
    "resource": "",  # the resource that /mcp announces
    "takes": "",  # the resource that requests must name, the one of /mcp by default; none: they must name no resource
    "checks_at": ["authorize", "authorization_code", "refresh_token"],  # where it is checked
    "refusal": {"error": "invalid_target"},  # the error of a request with another resource, if `takes` is set
    "issuer": "",  # the issuer that the authorisation server announces
    "issuer_path": "",  # the path of its issuer
    "well_known": "",  # the only path of its metadata
    "missing_status": 404,  # the status of all other well-known paths
    "described_as": {},  # further members of both metadata documents
    "iss": "",  # the issuer that /authorize names
    "token_members": {},  # further members of the response of /token
    "error_status": 400,  # the status of errors of /token
    "packed": "",  # encoding of the responses of /mcp: gzip, deflate, raw, br
    "redirect": "",  # where /mcp redirects to
    "token_status": 0,  # the error status of /token
    "token": "",  # the only access token
    "closed": False,  # /mcp and /sse reject every token
    "endpoint": "",  # the endpoint that /sse announces
    "metadata": "",  # the metadata URL that /mcp announces
    "holds": False,  # a renewal waits until this is false
    "forgets_with_400": False,  # 400 instead of 404 for an unknown session
    "client": {},  # a preregistered client: id, secret
}
COUNTS: dict[str, int] = {"registered": 0, "granted": 0, "renewed": 0, "held": 0, "refused": 0, "calls": 0, "sessions": 0}
CLIENTS: dict[str, Json] = {}
CODES: dict[str, dict[str, str]] = {}
ACCESS: dict[str, float] = {}
REFRESH: dict[str, str] = {}
SESSIONS: set[str] = set()
STREAMS: dict[str, queue.Queue[bytes | None]] = {}
REDIRECTED: list[dict[str, str]] = []
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
        """Log nothing."""

    @property
    def origin(self) -> str:
        """The address of this server."""
        return f"http://127.0.0.1:{cast('tuple[str, int]', self.server.server_address)[1]}"

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/authorize":
            return self._authorize(dict(parse_qsl(parts.query)))
        if parts.path.startswith("/.well-known/oauth-protected-resource"):
            return self._describe_resource(parts.path)
        if parts.path == (OPTIONS["well_known"] or "/.well-known/oauth-authorization-server"):
            return self._describe_authority()
        if "/.well-known/" in parts.path:
            return self._send(cast("int", OPTIONS["missing_status"]))
        if parts.path == "/redirected":
            return self._json(REDIRECTED)
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
            REDIRECTED.append({name.lower(): value for name, value in self.headers.items()})
            return self._send(200)
        if parts.path in {"/mcp", "/messages"}:
            return self._receive(cast("Json", json.loads(body)), parse_qs(parts.query).get("session", [""])[0])
        return self._send(404)

    # The tool server.

    def _receive(self, message: Json, session: str) -> None:
        if OPTIONS["redirect"]:
            return self._send(307, headers={"location": str(OPTIONS["redirect"])})
        if not self._is_authorized():
            return None
        if session:
            stream = STREAMS.get(session)
            if stream is None:
                return self._send(404)
            self._send(202)
            if "id" in message:
                stream.put(json.dumps(self._respond(message)[1]).encode())
            return None
        if "id" not in message:
            return self._send(202)
        status, body, headers = self._respond_in_session(message)
        return self._send_encoded(status, json.dumps(body).encode(), headers)

    def _is_authorized(self) -> bool:
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        if OPTIONS["open"] or (scheme == "Bearer" and ACCESS.get(token, 0) > time.time() and not OPTIONS["closed"]):
            return True
        COUNTS["refused"] += 1
        metadata_url = OPTIONS["metadata"] or f"{self.origin}/.well-known/oauth-protected-resource/mcp"
        challenge = f'Bearer resource_metadata="{metadata_url}"' if OPTIONS["described"] else "Bearer"
        self._send(401, headers={"www-authenticate": challenge})
        return False

    def _respond_in_session(self, message: Json) -> tuple[int, Json, dict[str, str]]:
        """Answer within a session."""
        session = self.headers.get("mcp-session-id", "")
        if message["method"] == "initialize":
            COUNTS["sessions"] += 1
            session = uuid.uuid4().hex
            SESSIONS.add(session)
            status, body = self._respond(message)
            return status, body, {"mcp-session-id": session}
        if message["method"] not in {"server/discover", "ping"} and session not in SESSIONS:
            status, number = (400, -32000) if OPTIONS["forgets_with_400"] else (404, -32001)
            error: Json = {"code": number, "message": "Bad Request: No valid session ID provided"}
            return status, {"jsonrpc": "2.0", "id": None, "error": error}, {}
        status, body = self._respond(message)
        return status, body, {}

    def _respond(self, message: Json) -> tuple[int, Json]:
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
        if not self._is_authorized():
            return
        session, stream = uuid.uuid4().hex, queue.Queue[bytes | None]()
        STREAMS[session] = stream
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        try:
            endpoint = OPTIONS["endpoint"] or f"/messages?session={session}"
            self.wfile.write(f"event: endpoint\ndata: {endpoint}\n\n".encode())
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
        issuer = str(OPTIONS["issuer"] or self.origin)
        named = self.origin + str(OPTIONS["issuer_path"])
        metadata: Json = {"resource": OPTIONS["resource"] or f"{self.origin}/mcp", "authorization_servers": [named], "note": issuer}
        return self._json({**metadata, **cast("Json", OPTIONS["described_as"])})

    def _describe_authority(self) -> None:
        if not OPTIONS["described"]:
            return self._send(404)
        metadata: Json = {
            "issuer": OPTIONS["issuer"] or self.origin + str(OPTIONS["issuer_path"]),
            "authorization_endpoint": f"{self.origin}/authorize",
            "token_endpoint": f"{self.origin}/token",
            "scopes_supported": ["read", "write"],
            "code_challenge_methods_supported": OPTIONS["methods"],
            "authorization_response_iss_parameter_supported": OPTIONS["names_issuer"],
            "client_id_metadata_document_supported": OPTIONS["documents"],
        }
        if OPTIONS["registers"]:
            metadata["registration_endpoint"] = f"{self.origin}/register"
        return self._json({**metadata, **cast("Json", OPTIONS["described_as"])})

    def _register(self, fields: Json) -> None:
        if not OPTIONS["registers"]:
            return self._send(404)
        if OPTIONS["refuses_registration"]:
            return self._json(OPTIONS["refuses_registration"], status=400)
        COUNTS["registered"] += 1
        client: Json = {**fields, "client_id": uuid.uuid4().hex}
        if fields.get("token_endpoint_auth_method") != "none":
            client |= {"client_secret": uuid.uuid4().hex, "token_endpoint_auth_method": "client_secret_post"}
        CLIENTS[str(client["client_id"])] = client
        return self._json(client, status=201)

    def _authorize(self, query: dict[str, str]) -> None:
        client = self._client(query.get("client_id", ""))
        redirects = cast("list[str]", (client or {}).get("redirect_uris") or [query.get("redirect_uri")])
        if client is None or query.get("redirect_uri") not in redirects or query.get("code_challenge_method") != "S256":
            return self._send(400)
        if OPTIONS["described"] and not OPTIONS["takes"] and query.get("resource") != f"{self.origin}/mcp":
            return self._send(400)
        parameters = {"state": query.get("state", "")}
        if OPTIONS["refuses"]:
            parameters["error"] = str(OPTIONS["refuses"])
        elif self._refuses_resource(query, "authorize"):
            parameters |= cast("dict[str, str]", OPTIONS["refusal"])
        else:
            code = uuid.uuid4().hex
            CODES[code] = query
            parameters["code"] = code
        if OPTIONS["names_issuer"]:
            parameters["iss"] = str(OPTIONS["iss"] or self.origin + str(OPTIONS["issuer_path"]))
        return self._send(302, headers={"location": f"{query['redirect_uri']}?{urlencode(parameters)}"})

    def _refuses_resource(self, fields: dict[str, str], place: str) -> bool:
        expected = None if OPTIONS["takes"] == "none" else OPTIONS["takes"]
        return bool(OPTIONS["takes"]) and place in cast("list[str]", OPTIONS["checks_at"]) and fields.get("resource") != expected

    def _client(self, client_id: str) -> Json | None:
        preregistered = cast("dict[str, str]", OPTIONS["client"])
        if preregistered and client_id == preregistered["id"]:
            return {"client_id": client_id, "client_secret": preregistered.get("secret")}
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
        if self._refuses_resource(form, form["grant_type"]):
            return self._json(OPTIONS["refusal"], status=cast("int", OPTIONS["error_status"]))
        if form["grant_type"] == "refresh_token":
            token = form["refresh_token"]
            if REFRESH.get(token) != client_id:
                return self._json({"error": "invalid_grant", "error_description": "unknown refresh token"}, status=400)
            if OPTIONS["rotates"]:
                del REFRESH[token]
            COUNTS["renewed"] += 1
        else:
            granted = CODES.pop(form["code"], {})
            challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
            is_same = all(granted.get(name) == form.get(name) for name in ("redirect_uri", "resource"))
            if granted.get("code_challenge") != challenge or granted.get("client_id") != client_id or not is_same:
                error = {"error": "invalid_grant", "error_description": "not that code"}
                return self._json(error, status=cast("int", OPTIONS["error_status"]))
            COUNTS["granted"] += 1
        access, refresh, lifetime_s = str(OPTIONS["token"] or uuid.uuid4().hex), uuid.uuid4().hex, cast("int", OPTIONS["expires_in"])
        ACCESS[access] = time.time() + min(lifetime_s, 10**9)
        REFRESH[refresh] = client_id
        answer: Json = {"access_token": access, "token_type": "bearer", "expires_in": lifetime_s, "refresh_token": refresh}
        return self._json({**answer, **cast("Json", OPTIONS["token_members"])})

    def _control(self, fields: Json) -> None:
        if fields.pop("revoke", None):
            ACCESS.clear()
        if fields.pop("revoke_refresh", None):
            REFRESH.clear()
        if fields.pop("drop", None):
            SESSIONS.clear()
            for stream in list(STREAMS.values()):
                stream.put(None)
        OPTIONS.update(fields)
        self._json(COUNTS)

    # Responses.

    def _send_encoded(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        encoding = str(OPTIONS["packed"])
        if encoding:
            bare = zlib.compressobj(wbits=-zlib.MAX_WBITS)
            encodings = {"gzip": gzip.compress(body), "deflate": zlib.compress(body), "raw": bare.compress(body) + bare.flush(), "br": body}
            body = encodings[encoding]
            headers = {**headers, "content-encoding": "deflate" if encoding == "raw" else encoding}
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
