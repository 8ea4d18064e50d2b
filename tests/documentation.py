"""The documentation as data: its pages, tables and blocks, the comparison of shown and real responses, and a terminal for its commands."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import cast

import httpx2

from distribution.reference_pages import list_commands, list_options
from tests.conftest import lend_model
from tests.deadlines import HANG_S

ROOT = Path(__file__).resolve().parent.parent
RUN = [
    ROOT / "README.md",
    ROOT / "docs" / "tutorial.md",
    *(
        ROOT / "docs" / "how-to" / f"{name}.md"
        for name in (
            "install",
            "tool-servers",
            "tool-calls",
            "manage-tool-servers",
            "discover-tools",
            "mcp-clients",
            "logins",
            "observe",
            "keys",
            "audit",
            "keys-over-http",
            "retry-safely",
            "avoid-lost-updates",
            "seal-secrets",
            "embedders",
            "reindex",
            "back-up",
            "behind-a-proxy",
            "deploy-with-docker",
            "deploy-with-systemd",
            "deploy-on-kubernetes",
            "sizing",
            "postgresql",
            "keep-memory-tidy",
            "forget",
            "plans",
            "plan-templates",
            "agents-over-mcp",
            "agent-sessions",
            "train-on-use",
            "who-wrote-and-read",
            "move-memories",
            "webhooks",
            "notifications",
            "notification-channels",
            "generate-content",
            "usage-and-cost",
            "score-texts",
            "api-documentation",
            "remember-and-recall",
            # Of other engines: their settings are parsed, and their commands run on the embedded ones.
            "engine-failures",
            "many-processes",
            "move-engines",
            "opensearch",
            "pgvector",
            "postgresql-for-everything",
            "qdrant",
            "valkey",
        )
    ),
    *(
        ROOT / "docs" / "reference" / f"{name}.md"
        for name in ("errors", "settings", "routes", "scopes", "commands", "events", "webhook-events", "metrics", "servers-json", "names")
    ),
]
"""Pages whose blocks are run, in this order: a page may use what an earlier one stored."""

PAGES = [
    *RUN,
    *(ROOT / "docs" / f"{name}.md" for name in ("index", "how-to/README", "reference/README", "architecture")),
    *sorted((ROOT / "docs" / "design").glob("*.md")),
]

RUN_ELSEWHERE = {
    "how-to/python-client": "tests/client/test_documentation.py runs its program",
    "how-to/console": "a browser shows it: tests of the console",
    "how-to/coding-agents": "tests/connect/test_documentation.py follows it in a repository, and compares its file",
    "reference/README": "an overview",
    "reference/engines": "tests.engines.engine_table writes it from the tests",
    "reference/tool-servers": "tests.tool_servers writes it from a run",
    "reference/agents": "tests.real_agents writes it from a run",
    "reference/others-memories": "tests.others_memories writes it from a run",
    "reference/text-generation-servers": "tests.text_generation_servers writes it from its record",
    "reference/ai-detection": "a model card, which `make eval-scoring` writes",
    "reference/sycophancy": "a model card",
}
"""The other pages of `docs`, each with the reason why its blocks are not run here."""

VARIES = frozenset(
    "id recall_id key_id created_at updated_at indexed_at expires_at last_used_at call_count took_ms duration_ms duration_s resealed score "
    "relevance "
    "duration_exact_ms upstream_ms "
    "similarity effective_confidence reset reset_in_seconds hint key plaintext_key datetime day_of_week "
    "pid software uptime_s p50_ms p95_ms seen_at result_bytes".split()
)
"""Fields whose values differ from run to run: they are matched by their type."""

ANY = "…"
"""In a shown response it matches any text; as the field "…": "…" of an object it matches any other fields."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block; *line* is its fence's, from 1."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def where(self) -> str:
        """The location of the block, as `path:line`."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Example:
    """A documented command and its expected answer, or None."""

    where: str
    command: str
    answer: str | None


def text_of(page: Path) -> str:
    """Return the text of a page."""
    return page.read_text(encoding="utf-8")


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of *page*, in order."""
    text = text_of(page)
    return [Block(page, text.count("\n", 0, match.start()) + 1, match[1], match[2]) for match in _FENCE.finditer(text)]


def prose(page: Path) -> str:
    """Return *page* without its blocks."""
    return _FENCE.sub("", text_of(page))


def commands(block: Block) -> list[Example]:
    """Return the commands of a block: each line of `sh`, each `$ ` of `console` with what is shown below it."""
    joined = block.text.replace("\\\n", " ")
    if block.language == "sh":
        return [Example(block.where, line, None) for line in joined.splitlines() if line.strip()]
    examples: list[Example] = []
    for part in re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]:
        # A quoted argument may go over several lines: the command ends where its quotes are closed.
        lines, command = part.splitlines(), ""
        for count, line in enumerate(lines, 1):
            command = f"{command}\n{line}" if command else line
            if _is_closed(command):
                examples.append(Example(block.where, command, "\n".join(lines[count:])))
                break
    return examples


def all_commands() -> Iterator[tuple[str, frozenset[str]]]:
    """Yield every command: its words and arguments, and its options."""
    for name, command in list_commands():
        yield name, frozenset(list_options(command))


def option_names() -> Iterator[tuple[str, list[str]]]:
    """Yield the names of each option of every command, without those that switch it off, with the words of the command."""
    for name, command in list_commands():
        yield from ((name, list(parameter.opts)) for parameter in command.params if parameter.param_type_name == "option")


def table(page: Path, first: str) -> list[list[str]]:
    """Return the rows of the table whose head begins with the cell *first*."""
    lines = iter(text_of(page).splitlines())
    for line in lines:
        if line.startswith(f"| {first} |"):
            next(lines)
            rows = list[list[str]]()
            for row in lines:
                if not row.startswith("|"):
                    break
                rows.append([cell.strip() for cell in row.strip("|").split("|")])
            return rows
    message = f"{page.name} has no table of {first!r}"
    raise LookupError(message)


def code(cell: str) -> list[str]:
    """Return the text in backticks."""
    return re.findall(r"`([^`]+)`", cell)


def differences(shown: object, real: object, path: str = "") -> Iterator[str]:
    """Yield the differences of a *real* answer from the *shown* one: fields, lengths, and values that do not vary."""
    if isinstance(shown, dict) and isinstance(real, dict):
        expected, actual = cast("dict[str, object]", shown), cast("dict[str, object]", real)
        if not (expected.keys() - {ANY} <= actual.keys() if ANY in expected else expected.keys() == actual.keys()):
            yield f"{path}: shown {sorted(expected)}, real {sorted(actual)}"
        for key in expected.keys() & actual.keys():
            yield from differences(expected[key], actual[key], f"{path}.{key}")
    elif isinstance(shown, list) and isinstance(real, list):
        items, others = cast("list[object]", shown), cast("list[object]", real)
        if len(items) != len(others):
            yield f"{path}: shown {len(items)} items, real {len(others)}"
        for item, other in zip(items, others, strict=False):
            yield from differences(item, other, path)
    elif not _is_same(path.rpartition(".")[2], cast("object", shown), real):
        yield f"{path}: shown {shown!r}, real {real!r}"


@dataclass
class Terminal:
    """The environment of documented commands: a real server, a shell, and an operator's command line beside it."""

    operator: subprocess.Popen[str]
    environment: dict[str, str]
    folder: Path

    def run(self, shown: Example) -> None:
        """
        Run a command, and compare its answer with the one that is shown.

        Raises:
            AssertionError: It failed, or answers something else.
        """
        words = shlex.split(shown.command)
        if words[0] == "rookery":
            answer = self._run_as_operator([Template(word).safe_substitute(self.environment) for word in words[1:]], shown)
        elif words[0] == "printf":
            assert "| openssl " in shown.command, f"{shown.where}: {words[0]} is not a supported command"
            answer = self._shell(shown) if shutil.which("openssl") else shown.answer or ""
        elif words[0] == "mkdir":
            answer = self._shell(shown)
        else:
            assert words[0] == "curl", f"{shown.where}: {words[0]} is not a supported command"
            answer = self._shell(shown) if shutil.which("curl") else self._send_request(shown)
        if shown.answer is not None:
            self._compare(shown, answer)
        if answer.startswith('{"session":'):
            self.environment["SESSION"] = json.loads(answer)["session"]["id"]
        if answer.startswith('{"id":') and '"audience":' in answer:
            self.environment["CAMPAIGN"] = json.loads(answer)["id"]
        if answer.startswith('{"recall_id":'):
            recalled = json.loads(answer)
            self.environment |= {"RECALL": recalled["recall_id"], "MEMORY": next((memory["id"] for memory in recalled["memories"]), "")}

    def _shell(self, shown: Example) -> str:
        process = subprocess.run(
            ["/bin/sh", "-c", shown.command], env=self.environment, capture_output=True, text=True, timeout=HANG_S, check=False
        )
        assert process.returncode == 0, f"{shown.where}: it ended with {process.returncode}: {process.stderr}"
        return process.stdout

    def _send_request(self, shown: Example) -> str:
        """Send the request of a curl command if curl is not installed. The documentation uses only -s, -X, -H and -d."""
        words = iter([Template(word).safe_substitute(self.environment) for word in shlex.split(shown.command)][1:])
        url, method, body, headers = "", "", None, dict[str, str]()
        for word in words:
            match word:
                case "-s":
                    continue
                case "-H":
                    name, _, value = next(words).partition(":")
                    headers[name] = value.strip()
                case "-X":
                    method = next(words)
                case "-d":
                    body = next(words)
                case _:
                    assert word.startswith("http"), f"{shown.where}: {word} is not a supported option"
                    url = word
        return httpx2.request(method or ("GET" if body is None else "POST"), url, content=body, headers=headers, timeout=HANG_S).text

    def _run_as_operator(self, arguments: list[str], shown: Example) -> str:
        """Run the command line with *arguments*; store the id and key that it creates as $ID and $NEW_KEY."""
        out = self.folder / "out"
        assert self.operator.stdin is not None
        assert self.operator.stdout is not None
        self.operator.stdin.write(json.dumps([arguments, str(out)]) + "\n")
        self.operator.stdin.flush()
        status = self.operator.stdout.readline().strip()
        error = out.with_suffix(".err").read_text(encoding="utf-8") if status != "0" else ""
        assert status == "0", f"{shown.where}: rookery {arguments} ended with {status}: {error}"
        answer = out.read_text(encoding="utf-8")
        if "--json" in arguments:
            created = json.loads(answer)
            for field_name, variable in (("id", "ID"), ("plaintext_key", "NEW_KEY"), ("key", "NEW_KEY")):
                if field_name in created:
                    self.environment[variable] = created[field_name]
        return answer

    def _compare(self, shown: Example, answer: str) -> None:
        assert shown.answer is not None
        if not shown.answer.lstrip().startswith(("{", "[")):
            assert answer.strip() == shown.answer.strip(), shown.where
            return
        mismatches = list(differences(json.loads(shown.answer), json.loads(answer)))
        assert mismatches == [], f"{shown.where}: {shown.command}\n" + "\n".join(mismatches) + f"\nreal: {answer}"


@contextmanager
def open_terminal(model_folder: Path) -> Generator[Terminal]:
    """Start a server on a free port, with its own data folder, and a command line beside it; stop both at the end."""
    with tempfile.TemporaryDirectory(prefix="rookery-docs-") as name:
        folder = Path(name)
        lend_model(model_folder, folder / "data")
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("ROOKERY_")}
        environment = {**inherited, "ROOKERY_DATA_DIR": str(folder / "data"), "ROOKERY_MIN_FREE_DISK_MB": "0", "ROOKERY_BCRYPT_COST": "4"}
        environment["HOME"] = str(folder / "home")  # `rookery connect` writes to the files of clients
        environment["ROOKERY_EGRESS_ALLOW"] = "127.0.0.1/32"  # as the how-to of webhooks does
        serve = [sys.executable, "-m", "rookery", "--data-dir", str(folder / "data"), "serve", "--port", "0"]
        with (
            subprocess.Popen(serve, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server,
            subprocess.Popen(
                [sys.executable, "-c", _OPERATOR, str(folder)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as operator,
        ):
            try:
                keys = _first_run(folder / "data" / "first-run.json", server)
                yield Terminal(operator, {**environment, "URL": keys["url"], "KEY": keys["api_key"], "BACKUP": str(folder)}, folder)
            finally:
                operator.kill()
                server.terminate()


_OPERATOR = """
import json, os, sys
from pathlib import Path
import rookery.cli.parts
from rookery.cli import COMMANDS, load_command, main
from rookery.kernel.config import Settings
from rookery.wiring import build_platform
build_platform(Settings(data_dir=Path(sys.argv[1])))
for entry in COMMANDS:
    load_command(entry.name)
for line in sys.stdin:
    arguments, out = json.loads(line)
    if (child := os.fork()) == 0:
        for number, path in ((1, out), (2, out + ".err")):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.argv = ["rookery", *arguments]
        main()
        sys.exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Runs each command in a forked process; importing the platform once saves most of the time of a short command."""


def _first_run(path: Path, server: subprocess.Popen[bytes]) -> Mapping[str, str]:
    """Wait until the server is ready and has listed its tool server; return the keys of the first run."""
    deadline = time.monotonic() + HANG_S
    last = "nothing"
    while time.monotonic() < deadline and server.poll() is None:
        try:
            keys = cast("Mapping[str, str]", json.loads(path.read_text(encoding="utf-8")))
            headers = {"Authorization": f"Bearer {keys['api_key']}"}
            body = httpx2.get(f"{keys['url']}/api/v1/mcp/servers", headers=headers, timeout=HANG_S).json()
            if all(server_["health"] == "online" and server_["tool_count"] for server_ in body["servers"]):
                return keys
            last = str(body)
        except (OSError, ValueError, httpx2.TransportError) as error:
            last = repr(error)
        time.sleep(0.05)
    message = f"no server within {HANG_S:.0f} s (it ended with {server.poll()}); last seen: {last}"
    raise TimeoutError(message)


def _is_closed(command: str) -> bool:
    try:
        shlex.split(command)
    except ValueError:
        return False
    return True


def _is_same(name: str, shown: object, real: object) -> bool:
    return _kind(shown) is _kind(real) and (shown in (real, ANY) or name in VARIES)


def _kind(value: object) -> type[object]:
    return float if isinstance(value, int) and not isinstance(value, bool) else type(value)
