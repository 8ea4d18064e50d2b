"""A real Postfix of Debian, unpacked into a folder and run from there, with limits that tests reach quickly. It needs root and apt."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.deadlines import HANG_S

PACKAGE = "postfix"
MESSAGES_PER_MINUTE = 10
MAX_SIZE_BYTES = 20_000
KNOWN, UNKNOWN, FULL = "kim@mail.test", "nobody@mail.test", "full@mail.test"

_OWNER, _GROUP = "uucp", "games"
"""Accounts that every Debian has. Postfix wants some that nothing else uses, and a package would create them."""

_QUEUES = ("active", "bounce", "corrupt", "defer", "deferred", "flush", "hold", "incoming", "private", "saved", "trace")
_SERVICES = """
127.0.0.1:{port} inet n - n - - smtpd
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
proxymap unix - - n - - proxymap
error unix - - n - - error
retry unix - - n - - error
discard unix - - n - - discard
anvil unix - - n - 1 anvil
tlsmgr unix - - n 1000? 1 tlsmgr
postlog unix-dgram n - n - 1 postlogd
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Postfix:
    """The running server."""

    port: int
    version: str


def install(folder: Path) -> str:
    """Download and unpack the package if it is missing; return the reason if that failed, else an empty text."""
    root = folder / "root"
    if (root / "usr/sbin/postconf").exists():
        return ""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(["apt-get", "download", PACKAGE], cwd=folder, check=True, capture_output=True, text=True, timeout=5 * HANG_S)
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, root], check=True, capture_output=True, text=True, timeout=HANG_S)
    except (subprocess.SubprocessError, OSError) as error:
        return f"{PACKAGE} cannot be had by apt: {getattr(error, 'stderr', None) or error}".strip()
    return ""


@contextmanager
def run_postfix(folder: Path) -> Generator[Postfix]:
    """Run the unpacked server on a free port of 127.0.0.1. It delivers to nobody, and ends with the block."""
    root, state = folder / "root", folder / "state"
    shutil.rmtree(state, ignore_errors=True)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    etc = _configure(root, state, port)
    libraries = f"{root}/usr/lib/postfix:{root}/usr/lib/x86_64-linux-gnu"
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries, "MAIL_CONFIG": str(etc)}
    version = subprocess.run(
        [root / "usr/sbin/postconf", "-h", "mail_version"], env=environment, capture_output=True, check=True, text=True, timeout=HANG_S
    ).stdout.strip()
    server = subprocess.Popen([root / "usr/lib/postfix/sbin/master", "-c", etc, "-d"], env=environment)
    try:
        _wait_for(port)
        yield Postfix(port=port, version=version)
    finally:
        server.terminate()
        server.wait(HANG_S)


def _configure(root: Path, state: Path, port: int) -> Path:
    etc, queue, data = state / "etc", state / "queue", state / "data"
    for path in (etc, queue, data):
        path.mkdir(parents=True)
    for name in _QUEUES:
        (queue / name).mkdir(mode=0o700)
        shutil.chown(queue / name, _OWNER)
    for name, mode in (("pid", 0o755), ("maildrop", 0o730), ("public", 0o710)):
        (queue / name).mkdir()
        (queue / name).chmod(mode)
    for name in ("maildrop", "public"):
        shutil.chown(queue / name, _OWNER, _GROUP)
    shutil.chown(data, _OWNER)
    data.chmod(0o700)
    (etc / "recipients").write_text(f"{KNOWN} x\n{FULL} x\n", encoding="utf-8")
    (etc / "access").write_text(f"{FULL} 452 4.2.2 The mailbox is full\n", encoding="utf-8")
    settings = {
        "compatibility_level": "3.6",
        "queue_directory": queue,
        "data_directory": data,
        "command_directory": root / "usr/sbin",
        "daemon_directory": root / "usr/lib/postfix/sbin",
        "meta_directory": root / "etc/postfix",
        "shlib_directory": root / "usr/lib/postfix",
        "mail_owner": _OWNER,
        "setgid_group": _GROUP,
        "import_environment": "MAIL_CONFIG MAIL_LOGTAG TZ LANG=C LD_LIBRARY_PATH POSTLOG_SERVICE POSTLOG_HOSTNAME",
        "myhostname": "mail.test",
        "mydestination": "mail.test",
        "mynetworks": "127.0.0.0/8",
        "inet_interfaces": "127.0.0.1",
        "inet_protocols": "ipv4",
        "local_recipient_maps": f"texthash:{etc}/recipients",
        "alias_maps": "",
        "default_transport": "discard:",
        "local_transport": "discard:",
        "smtpd_recipient_restrictions": f"check_recipient_access texthash:{etc}/access, permit_mynetworks, reject",
        "smtpd_reject_unlisted_recipient": "yes",
        "smtpd_client_message_rate_limit": MESSAGES_PER_MINUTE,
        "smtpd_client_event_limit_exceptions": "",
        "message_size_limit": MAX_SIZE_BYTES,
        "maillog_file": state / "maillog",
        "maillog_file_prefixes": state,
    }
    (etc / "main.cf").write_text("".join(f"{name} = {value}\n" for name, value in settings.items()), encoding="utf-8")
    (etc / "master.cf").write_text(_SERVICES.format(port=port), encoding="utf-8")
    return etc


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + HANG_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=HANG_S).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return
