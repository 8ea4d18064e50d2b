"""
Receive webhooks with plain Python: `python examples/webhook_receiver.py --port 9000`.

Each delivery is checked with the endpoint's secret, in WEBHOOK_SECRET; two, with a space between, while it is changed.
What is good is written into an inbox, a file of SQLite, and answered at once; the work is done after that, event by event, so that it may
take longer than the 10 s that Rookery waits, and goes on where it stopped if this program is killed.
An event that comes again, as each may, is in the inbox already and is not done twice.
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

LONGEST_BODY = 4 * 1024 * 1024
LONGEST_NUMBER = 18
SLOWEST_S = 10
"""Who sends a body more slowly than that does not hold a thread for ever."""

TRY_AGAIN_S = 60


def main() -> None:
    """Receive until stopped."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0] if __doc__ else None)
    arguments.add_argument("--host", default="127.0.0.1")
    arguments.add_argument("--port", type=int, default=9000, help="0 takes a free one.")
    arguments.add_argument("--inbox", type=Path, default=Path("webhooks.sqlite"))
    chosen = arguments.parse_args()
    secrets = os.environ.get("WEBHOOK_SECRET", "").split()
    if not secrets:
        sys.exit("Set WEBHOOK_SECRET to the secret that was shown when the endpoint was made.")
    inbox = Inbox(chosen.inbox)
    with Receiver((chosen.host, chosen.port), secrets, inbox) as receiver:
        threading.Thread(target=work, args=(inbox,), daemon=True).start()
        print(f"listening on http://{chosen.host}:{receiver.server_port}/", flush=True)
        receiver.serve_forever()


def handle(event: WebhookEvent) -> None:
    """Do what is to be done about an event: here stands your code."""
    what = event.data.get("title") or event.data.get("name") or event.data.get("id") or ""
    print(f"{event.type} {what}".rstrip(), flush=True)


class Inbox:
    """Events that came, each once, and which of them are done."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.filled = threading.Event()
        with closing(self._open()) as file, file:
            file.execute("PRAGMA journal_mode = WAL")
            file.execute("CREATE TABLE IF NOT EXISTS inbox (id TEXT PRIMARY KEY, body BLOB NOT NULL, done INTEGER NOT NULL DEFAULT 0)")

    def put(self, event: WebhookEvent, body: bytes) -> bool:
        """Keep an event for good, and tell whether it is new."""
        with closing(self._open()) as file, file:
            is_new = file.execute("INSERT OR IGNORE INTO inbox (id, body) VALUES (?, ?)", (event.id, body)).rowcount == 1
        self.filled.set()
        return is_new

    def waiting(self) -> list[WebhookEvent]:
        """Return some events that are not done, those that came first first."""
        with closing(self._open()) as file:
            rows = file.execute("SELECT body FROM inbox WHERE NOT done ORDER BY rowid LIMIT 100").fetchall()
        return [WebhookEvent.of(body) for (body,) in rows]

    def done(self, event: WebhookEvent) -> None:
        """Keep that an event was handled; its id stays, so that it is known when it comes again."""
        with closing(self._open()) as file, file:
            file.execute("UPDATE inbox SET done = 1, body = '' WHERE id = ?", (event.id,))

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=SLOWEST_S)


class Receiver(ThreadingHTTPServer):
    """Checks deliveries and puts them into the inbox."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], secrets: list[str], inbox: Inbox) -> None:
        super().__init__(address, Delivery)
        self.secrets = secrets
        self.inbox = inbox


class Delivery(BaseHTTPRequestHandler):
    """One delivery: 204 kept, 401 not from Rookery, 413 and 400 no delivery at all."""

    server: Receiver  # pyright: ignore[reportIncompatibleVariableOverride] - the one that made us
    protocol_version = "HTTP/1.1"  # so that Rookery may keep the connection
    timeout = SLOWEST_S

    def do_POST(self) -> None:
        """Check, keep, answer; the work comes later."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or len(length) > LONGEST_NUMBER:
            self._answer(400)
        elif int(length) > LONGEST_BODY:
            self._answer(413)
        else:
            body = self.rfile.read(int(length))
            try:
                event = verify_webhook(body, self.headers, self.server.secrets)
            except WebhookRejected as refused:
                print(f"refused: {refused}", file=sys.stderr, flush=True)
                self._answer(401)
            else:
                self.server.inbox.put(event, body)
                self._answer(204)

    def _answer(self, status: int) -> None:
        self.close_connection = status in {400, 413}  # what is left of the body would be taken for the next request
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of each request; `handle` says what came."""


def work(inbox: Inbox) -> None:
    """Handle what came, in the order it came; an event that fails is tried again, and those after it wait."""
    while True:
        inbox.filled.clear()
        try:
            while events := inbox.waiting():
                for event in events:
                    handle(event)
                    inbox.done(event)
        except Exception:  # noqa: BLE001 - whatever your code raises must not end the program
            traceback.print_exc()
        inbox.filled.wait(TRY_AGAIN_S)


if __name__ == "__main__":
    main()
