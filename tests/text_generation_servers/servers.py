"""The servers that `make text-generation-servers` runs, pinned, and the requests that each gets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.llama_server import MODEL as LLAMA_MODEL
from tests.llama_server import PYTHON as LLAMA_PYTHON
from tests.pinned_packages import NODE, install_npm, install_python, is_current
from tests.postgres import free_port
from tests.text_generation_servers.exchanges import Json
from tests.text_generation_servers.upstream import SCRIPTS, UPSTREAM_KEY

HERE = Path(__file__).parent
INSTALLED = HERE.parents[1] / ".venv" / "text-generation-servers"
KEY = "sk-the-key-of-the-server-0001"
_START_LIMIT_S = 180
_SERVICE_UNAVAILABLE = 503

STARS: Json = {
    "type": "object",
    "properties": {"stars": {"type": "integer", "minimum": 1, "maximum": 5}},
    "required": ["stars"],
}
_TRUE_SCHEMA: Json = {**STARS, "properties": {"v": True, "stars": {"type": "integer"}}}
_TALL_PROMPT = "heron " * 4000


@dataclass(frozen=True, kw_only=True)
class Case:
    """
    A request for the record.

    Attributes:
        request: The fields of Rookery's request, as in `Exchange`.
        model: The model, if it is not the usual one of the server.
        extra: Fields of the body that Rookery does not send, with which the server shows what its model does not do by itself.
        key: Another key.
    """

    name: str
    request: Json = field(default_factory=dict[str, object])
    model: str | None = None
    prompt: str = "How high is Lyon?"
    extra: Json = field(default_factory=dict[str, object])
    key: str = KEY
    comment: str = ""


@dataclass(frozen=True, kw_only=True)
class RunningServer:
    """A server: where it answers, and the headers that it needs beside those of Rookery."""

    port: int
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


_THINKING = r'root ::= "<think>\nThe user asks for the height.\n</think>\n\nLyon is 173 m high."'
_LONE_END = r'root ::= "The user asks for the height.\n</think>\n\nLyon is 173 m high."'

LLAMA_CASES = (
    Case(name="an answer"),
    Case(name="an answer, streamed", request={"stream": True, "max_tokens": 12}),
    Case(name="a schema", request={"schema": STARS}),
    Case(name="a schema, streamed", request={"schema": STARS, "stream": True}),
    Case(name="a schema with `true` in it", request={"schema": _TRUE_SCHEMA}),
    Case(name="a schema with `true` in it, streamed", request={"schema": _TRUE_SCHEMA, "stream": True}),
    Case(name="a block of reasoning", extra={"grammar": _THINKING, "max_tokens": 60}),
    Case(name="a block of reasoning, streamed", request={"stream": True}, extra={"grammar": _THINKING, "max_tokens": 60}),
    Case(name="only the end of a block", extra={"grammar": _LONE_END, "max_tokens": 60}),
    Case(name="only the end of a block, streamed", request={"stream": True}, extra={"grammar": _LONE_END, "max_tokens": 60}),
    Case(name="the same prompt again", extra={"cache_prompt": True}),
    Case(name="cut at one token", request={"max_tokens": 1}),
    Case(name="a prompt that is too long", prompt=_TALL_PROMPT),
    Case(name="a prompt that is too long, streamed", prompt=_TALL_PROMPT, request={"stream": True}),
    Case(name="a wrong key", key="sk-wrong-000000001"),
    Case(name="a temperature that is no number", extra={"temperature": "warm"}),
)


_LOST_TOTAL = "LiteLLM makes the total of a stream from its parts, so the tokens that only the total had are lost on the way"
_NO_STREAM = "Portkey 1.15.2 fails with every stream on Node.js 24, so no other stream was tried"


def _list_proxy_cases() -> Iterator[Case]:
    for name in SCRIPTS:
        comment = _LOST_TOTAL if name == "reasoning-in-total" else ""
        fields: Json = {"temperature": 0.2} if name == "no-temperature" else {"schema": STARS} if name == "invalid-schema" else {}
        yield Case(name=name, model=name, request=fields)
        yield Case(name=f"{name}, streamed", model=name, request={**fields, "stream": True}, comment=comment)


PROXY_CASES = tuple(_list_proxy_cases())
PORTKEY_CASES = (
    *(case for case in PROXY_CASES if not case.request.get("stream")),
    Case(name="plain, streamed", model="plain", request={"stream": True}, comment=_NO_STREAM),
)


@dataclass(frozen=True, kw_only=True)
class Server:
    """
    A server.

    Attributes:
        package: Its package, as its registry names it.
        lock: The lock that installs it; None: `make test-engines` has installed it.
        is_proxy: It passes requests on to the scripted service.
    """

    id: str
    title: str
    package: str
    version: str
    lock: str | None
    is_proxy: bool
    cases: tuple[Case, ...]

    def install(self, installed: Path) -> None:
        """Install the server into a folder of *installed* if it is missing. Raises an error of the installer."""
        if self.lock is None or is_current(HERE / self.lock, installed / self.id):
            return
        print(f"Installing {self.title}, once", flush=True)
        if self.lock.endswith(".json"):
            install_npm(HERE, installed / self.id, "install")
        else:
            install_python(HERE / self.lock, installed / self.id, sys.executable)

    @contextmanager
    def run(self, installed: Path, folder: Path, upstream_port: int) -> Generator[RunningServer]:
        """Run the server with *folder* for its files, and yield it when it answers."""
        port, headers = free_port(), dict[str, str]()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        if self.id == "llama-cpp":
            command = [str(LLAMA_PYTHON), str(HERE.parent / "llama_server.py"), str(port), KEY]
            path = "/health"
        elif self.id == "litellm":
            command = _configure_litellm(installed, folder, port, upstream_port)
            environment |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
            path = "/health/liveliness"
        else:
            script = installed / self.id / "node_modules" / self.package / "build" / "start-server.js"
            command = [str(NODE / "bin" / "node"), str(script), f"--port={port}", "--headless"]
            headers = {"x-portkey-provider": "openai", "x-portkey-custom-host": f"http://127.0.0.1:{upstream_port}/v1"}
            environment |= {"TRUSTED_CUSTOM_HOSTS": "127.0.0.1,localhost"}
            path = "/"
        with (folder / f"{self.id}.log").open("wb") as log:
            process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
        try:
            _wait_until_ready(process, f"http://127.0.0.1:{port}{path}")
            yield RunningServer(port=port, headers=headers)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


SERVERS = (
    Server(
        id="llama-cpp",
        title="llama.cpp's server",
        package="xllamacpp",
        version="2026.10.11549",
        lock=None,
        is_proxy=False,
        cases=LLAMA_CASES,
    ),
    Server(
        id="litellm", title="LiteLLM's proxy", package="litellm", version="1.108.7", lock="litellm.lock", is_proxy=True, cases=PROXY_CASES
    ),
    Server(
        id="portkey",
        title="Portkey's gateway",
        package="@portkey-ai/gateway",
        version="1.15.2",
        lock="package-lock.json",
        is_proxy=True,
        cases=PORTKEY_CASES,
    ),
)


def build_body(server: Server, case: Case) -> Json:
    """Return the body of a request as Rookery sends it, with the fields beyond it."""
    body: Json = {
        "model": case.model or LLAMA_MODEL,
        "messages": [{"role": "user", "content": case.prompt}],
        "max_tokens": case.request.get("max_tokens", 40),
    }
    if "temperature" in case.request:
        body["temperature"] = case.request["temperature"]
    if "schema" in case.request:
        schema = {"name": "answer", "strict": True, "schema": case.request["schema"]}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if case.request.get("stream"):
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body | case.extra


def _configure_litellm(installed: Path, folder: Path, port: int, upstream_port: int) -> list[str]:
    parameters = {"api_base": f"http://127.0.0.1:{upstream_port}/v1", "api_key": UPSTREAM_KEY}
    config = {
        "model_list": [{"model_name": name, "litellm_params": {"model": f"openai/{name}", **parameters}} for name in SCRIPTS],
        "general_settings": {"master_key": KEY},
        "litellm_settings": {"num_retries": 0, "telemetry": False},
        "router_settings": {"num_retries": 0, "disable_cooldowns": True},
    }
    file = folder / "litellm.yaml"
    file.write_text(json.dumps(config))
    program = installed / "litellm" / "bin" / "litellm"
    return [str(program), "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]


def _wait_until_ready(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):  # noqa: S310 - the address is on this host
                return
        except urllib.error.HTTPError as error:
            if error.code < _SERVICE_UNAVAILABLE:
                return
            time.sleep(0.3)
        except OSError:
            time.sleep(0.3)
    msg = "the server does not start"
    raise RuntimeError(msg)
