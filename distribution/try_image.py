"""
Run the built image as a container would: its user, a read-only root, only /data and /tmp writable. `make test-image` calls it.

bubblewrap stands in for the container runtime. It gives the same view: own users, own processes, a root that cannot be written.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import cast

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0
REQUEST_TIMEOUT_S = 60.0

TMP = "/tmp"  # noqa: S108 - of the container, not of this machine
STORED = ("The cat is called Miso.", "Deploys happen on Tuesdays.", "The staging password is in the vault.")
QUESTION = "What is the name of our pet?"
LAST = "The last request before the stop is stored."


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A built image whose root is mounted at *root*."""

    root: Path
    user: str
    entrypoint: Sequence[str]
    command: Sequence[str]
    health_check: Sequence[str]
    variables: Sequence[str]

    def wrap(self, command: Sequence[str], *, data: Path, port: int) -> list[str]:
        """Return the command that runs *command* in the image, with *data* as its /data."""
        variables = dict(variable.split("=", 1) for variable in self.variables) | {"ROOKERY_PORT": str(port), "ROOKERY_HOST": "127.0.0.1"}
        uid, _, gid = self.user.partition(":")
        return [
            *f"bwrap --ro-bind {self.root} / --proc /proc --dev /dev --tmpfs {TMP} --bind {data} /data --chdir /data".split(),
            *f"--unshare-user --uid {uid} --gid {gid} --unshare-ipc --unshare-pid --as-pid-1 --die-with-parent".split(),
            "--clearenv",
            *(word for name, value in variables.items() for word in ("--setenv", name, value)),
            *command,
        ]


@contextmanager
def mount_image(work: Path, tag: str) -> Generator[Image]:
    """Mount the image *tag* of the storage in *work*, and unmount it at the end."""
    buildah = ["buildah", "--root", str(work / "storage"), "--runroot", str(work / "run"), "--storage-driver", "vfs"]

    def run(*arguments: str) -> str:
        return subprocess.run([*buildah, *arguments], check=True, capture_output=True, text=True).stdout.strip()

    config = cast("dict[str, object]", json.loads(run("inspect", "--type", "image", tag))["Docker"]["config"])
    container = run("from", tag)
    try:
        yield Image(
            root=Path(run("mount", container)),
            user=str(config["User"]),
            entrypoint=cast("list[str]", config["Entrypoint"]),
            command=cast("list[str]", config["Cmd"]),
            health_check=cast("dict[str, list[str]]", config["Healthcheck"])["Test"][1:],
            variables=cast("list[str]", config["Env"]),
        )
    finally:
        run("rm", container)


@contextmanager
def run_server(image: Image, data: Path, port: int) -> Generator[subprocess.Popen[str]]:
    """Start the image's own command on *data*, wait until its own health check passes, and stop it at the end."""
    command = image.wrap([*image.entrypoint, *image.command], data=data, port=port)
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while subprocess.run(image.wrap(image.health_check, data=data, port=port), check=False, capture_output=True).returncode:
            if server.poll() is not None or time.monotonic() > deadline:
                server.kill()
                sys.exit(f"the server did not become healthy:\n{server.communicate()[0]}")
            time.sleep(0.2)
        yield server
    finally:
        server.kill()
        server.wait()


def check_isolation(image: Image, data: Path) -> None:
    """Fail unless the user of the image is not root and can write only /data and /tmp."""
    if image.user.partition(":")[0] in {"", "0", "root"}:
        sys.exit(f"the image runs as {image.user or 'root'}")
    code = (
        "import os, tempfile\n"
        "for folder in ('/', '/opt/rookery', '/etc', '/usr/bin', '/var/tmp', '/data', '/tmp'):\n"
        "    try: tempfile.TemporaryFile(dir=folder).close()\n"
        "    except OSError: continue\n"
        "    print(folder, end=' ')\n"
        "print(os.getuid())"
    )
    found = subprocess.run(image.wrap(["python", "-c", code], data=data, port=0), check=True, capture_output=True, text=True).stdout.split()
    if found != ["/data", TMP, image.user.partition(":")[0]]:
        sys.exit(f"writable folders and user id are {found}")


def find_build_tools(image: Image) -> list[str]:
    """Return the programs in the image that only a build needs."""
    programs = ("gcc", "cc", "make", "ld", "strip", "uv", "opt/rookery/bin/pip")
    return [name for name in programs for folder in ("usr/bin", "usr/local/bin", "") if (image.root / folder / name).exists()]


def post(port: int, key: str, path: str, body: dict[str, object]) -> dict[str, object]:
    """Send a request and return its answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=REQUEST_TIMEOUT_S)
    connection.request("POST", path, json.dumps(body), {"Authorization": f"Bearer {key}", "Content-Type": "application/json"})
    response = connection.getresponse()
    answer = cast("dict[str, object]", json.loads(response.read()))
    if response.status >= 300:
        sys.exit(f"POST {path} returned {response.status}: {answer}")
    return answer


def recall_until_found(port: int, key: str, query: dict[str, object], content: str) -> None:
    """Recall until the best memory has *content*: it may take longer to index on a slow machine than the server waits."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        memories = cast("list[dict[str, str]]", post(port, key, "/v1/brain/recall", query)["memories"])
        if memories and memories[0]["content"] == content:
            return
        if time.monotonic() > deadline:
            sys.exit(f"recall of {query['query']!r} returned {[memory['content'] for memory in memories]}")
        time.sleep(0.2)


def stop_during_request(server: subprocess.Popen[str], port: int, key: str) -> float:
    """
    Send SIGTERM while a request has arrived in part, send the rest, and return the seconds until the exit.

    The request must be answered, later ones refused, and the exit code 0.
    """
    body = json.dumps({"type": "fact", "content": LAST}).encode()
    head = f"POST /v1/brain/remember HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=REQUEST_TIMEOUT_S) as connection:
        connection.sendall(head.encode() + body[:10])
        post(port, key, "/v1/brain/recall", {"query": QUESTION})  # the server has read the head by now: it answers in the order of arrival
        (child,) = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text(encoding="ascii").split()
        started = time.monotonic()
        os.kill(int(child), signal.SIGTERM)  # the server, which is process 1 of its namespace as in a container
        _wait_until_refused(port)
        connection.sendall(body[10:])
        answer = connection.makefile("rb").read()
    if not answer.startswith(b"HTTP/1.1 201"):
        sys.exit(f"the request in progress was answered with {answer[:200]!r}")
    output, _ = server.communicate(timeout=STOP_TIMEOUT_S)
    if server.returncode:
        sys.exit(f"the server exited with {server.returncode}:\n{output}")
    return time.monotonic() - started


def _wait_until_refused(port: int) -> None:
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=REQUEST_TIMEOUT_S).close()
        except ConnectionRefusedError:
            return
        time.sleep(0.02)
    sys.exit("the server still accepts connections after SIGTERM")


def main() -> None:
    """Use the image, and print what was found."""
    parser = argparse.ArgumentParser(description="Run the built image with a read-only root, and use it.")
    parser.add_argument("work", type=Path, help="the folder of build_image.sh")
    parser.add_argument("--tag", default="rookery:test")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rookery-image-") as folder, mount_image(arguments.work, arguments.tag) as image:
        data = Path(folder)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = cast("int", free.getsockname()[1])
        check_isolation(image, data)
        if tools := find_build_tools(image):
            sys.exit(f"the image contains tools of the build: {', '.join(tools)}")
        started = time.monotonic()
        with run_server(image, data, port) as server:
            healthy_s = time.monotonic() - started
            key = str(json.loads((data / "first-run.json").read_text(encoding="utf-8"))["api_key"])
            for content in STORED:
                post(port, key, "/v1/brain/remember", {"type": "fact", "content": content, "wait_ms": 5000})
            recall_until_found(port, key, {"query": QUESTION, "mode": "semantic"}, STORED[0])
            stopped_s = stop_during_request(server, port, key)
        with run_server(image, data, port):
            last = cast(
                "list[dict[str, str]]", post(port, key, "/v1/brain/recall", {"query": "last request", "mode": "keyword"})["memories"]
            )
            if not last:
                sys.exit("the memory of the last request was lost")
    print(f"healthy after {healthy_s:.1f} s, remembers and recalls as user {image.user} on a read-only root")
    print(f"SIGTERM: new connections refused, the request in progress answered and stored, exit after {stopped_s:.1f} s")


if __name__ == "__main__":
    main()
