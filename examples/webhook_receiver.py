"""
Receive webhooks with plain Python: `python examples/webhook_receiver.py --port 9000`.

Each delivery is verified with the endpoint's secret in WEBHOOK_SECRET. During a rotation, set both secrets, separated by a space.

A valid event is stored in an inbox, a SQLite file below ~/.local/state, and answered at once. A thread then handles events one by one,
so handling may take longer than the 10 s that Rookery waits, and continues after a restart. A repeated event is already in the inbox and is
not handled again.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
import threading
import traceback
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from rookery_client import WebhookEvent, WebhookRejected, verify_webhook

MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_LENGTH_DIGITS = 18
SOCKET_TIMEOUT_S = 10
"""Timeout of a connection, so that a slow sender does not block a thread for ever."""

RETRY_DELAY_S = 60


def main() -> None:
    """Receive deliveries until the program is stopped."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0] if __doc__ else None)
    arguments.add_argument("--host", default="127.0.0.1")
    arguments.add_argument("--port", type=int, default=9000, help="0 selects a free port.")
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "rookery"
    arguments.add_argument("--inbox", type=Path, default=state / "webhooks.sqlite", help="The file of the inbox (default: %(default)s).")
    chosen = arguments.parse_args()
    secrets = os.environ.get("WEBHOOK_SECRET", "").split()
    if not secrets:
        sys.exit("Set WEBHOOK_SECRET to the secret that was shown when you created the endpoint.")
    chosen.inbox.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    inbox = Inbox(chosen.inbox)
    with Receiver((chosen.host, chosen.port), secrets, inbox) as receiver:
        threading.Thread(target=work, args=(inbox,), daemon=True).start()
        print(f"listening on http://{chosen.host}:{receiver.server_port}/", flush=True)
        receiver.serve_forever()


def handle(event: WebhookEvent) -> None:
    """Handle an event; replace this with your code."""
    what = event.data.get("title") or event.data.get("name") or event.data.get("id") or ""
    print(f"{event.type} {what}".rstrip(), flush=True)


class Inbox:
    """Received events, each stored once, and whether they are handled."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.filled = threading.Event()
        with closing(self._open()) as file, file:
            file.execute("PRAGMA journal_mode = WAL")
            file.execute("CREATE TABLE IF NOT EXISTS inbox (id TEXT PRIMARY KEY, body BLOB NOT NULL, done INTEGER NOT NULL DEFAULT 0)")

    def put(self, event: WebhookEvent, body: bytes) -> bool:
        """Store an event durably. Return whether it is new."""
        with closing(self._open()) as file, file:
            is_new = file.execute("INSERT OR IGNORE INTO inbox (id, body) VALUES (?, ?)", (event.id, body)).rowcount == 1
        self.filled.set()
        return is_new

    def waiting(self) -> list[WebhookEvent]:
        """Return up to 100 events that are not handled, oldest first."""
        with closing(self._open()) as file:
            rows = file.execute("SELECT body FROM inbox WHERE NOT done ORDER BY rowid LIMIT 100").fetchall()
        return [WebhookEvent.of(body) for (body,) in rows]

    def done(self, event: WebhookEvent) -> None:
        """Mark an event as handled. Its id stays, so a repetition is recognised."""
        with closing(self._open()) as file, file:
            file.execute("UPDATE inbox SET done = 1, body = '' WHERE id = ?", (event.id,))

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=SOCKET_TIMEOUT_S)


class Receiver(ThreadingHTTPServer):
    """An HTTP server that verifies deliveries and stores them in the inbox."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], secrets: list[str], inbox: Inbox) -> None:
        super().__init__(address, Delivery)
        self.secrets = secrets
        self.inbox = inbox


class Delivery(BaseHTTPRequestHandler):
    """One delivery. It is answered with 204 if stored, 401 if verification fails, and 400 or 413 for an invalid length."""

    server: Receiver  # pyright: ignore[reportIncompatibleVariableOverride] - the one that created this handler
    protocol_version = "HTTP/1.1"  # lets Rookery reuse the connection
    timeout = SOCKET_TIMEOUT_S

    def do_POST(self) -> None:
        """Verify, store and answer. The `work` thread handles the event later."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or len(length) > MAX_LENGTH_DIGITS:
            self._answer(400)
        elif int(length) > MAX_BODY_BYTES:
            self._answer(413)
        else:
            body = self.rfile.read(int(length))
            try:
                event = verify_webhook(body, self.headers, self.server.secrets)
            except WebhookRejected as refused:
                print(f"rejected: {refused}", file=sys.stderr, flush=True)
                self._answer(401)
            else:
                self.server.inbox.put(event, body)
                self._answer(204)

    def _answer(self, status: int) -> None:
        self.close_connection = status in {400, 413}  # the rest of the body would be parsed as the next request
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Do not log requests; `handle` prints each event."""


def work(inbox: Inbox) -> None:
    """Handle events in order of arrival. If one fails, it is retried, and later ones wait."""
    while True:
        inbox.filled.clear()
        try:
            while events := inbox.waiting():
                for event in events:
                    handle(event)
                    inbox.done(event)
        except Exception:  # noqa: BLE001 - errors of your code must not end the program
            traceback.print_exc()
        inbox.filled.wait(RETRY_DELAY_S)


if __name__ == "__main__":
    main()
