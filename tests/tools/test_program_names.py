"""The programs that command lines of tool servers start in the end, behind shells, package runners and containers."""

from __future__ import annotations

import shlex

import pytest

from rookery.tools.program_names import find_program

MEMORY = "@modelcontextprotocol/server-memory"


@pytest.mark.parametrize(
    ("command_line", "name"),
    [
        (f"npx -y {MEMORY}@2026.8.31", MEMORY),
        (f"npx --package={MEMORY} mcp-server-memory", MEMORY),
        (f"npm exec --yes -- {MEMORY}", MEMORY),
        (f"pnpm dlx {MEMORY}", MEMORY),
        (f"bun x {MEMORY}", MEMORY),
        (f"deno run --allow-all npm:{MEMORY}@2026.8.31", MEMORY),
        (f"node --import tsx /srv/node_modules/{MEMORY}/dist/index.js", MEMORY),
        (f"bash -lc 'cd /srv && exec npx -y {MEMORY}'", MEMORY),
        (f"sh -c 'npx -y {MEMORY} 2>&1 | tee log'", MEMORY),
        (f"/usr/bin/env MEMORY_FILE_PATH=/srv/graph.json npx -y {MEMORY}", MEMORY),
        (f"env -S 'A=1 npx -y {MEMORY}'", MEMORY),
        (f"cmd.exe /c npx -y {MEMORY}", MEMORY),
        (f"powershell -Command 'npx -y {MEMORY}'", MEMORY),
        (f"timeout -k 5 600 nice -n 5 npx -y {MEMORY}", MEMORY),
        (f"op run --env-file=.env -- npx -y {MEMORY}", MEMORY),
        ("docker run -i --rm -v memory:/app/dist mcp/memory", "mcp/memory"),
        ("docker run -it --rm --network none --env TOKEN registry.acme.example:5000/mcp/memory:latest", "mcp/memory"),
        ("podman run --pull=always localhost/acme/mcp-crane@sha256:0123 --verbose", "acme/mcp-crane"),
        ("sh -c 'docker run -i --init images.acme.example/playwright/mcp'", "playwright/mcp"),
        ("uvx --python 3.12 mcp-server-git==2026.1.1 --repository .", "mcp-server-git"),
        ("uvx --from git+https://git.acme.example/acme/mcp-crane.git@v2 crane", "mcp-crane"),
        ("uv --directory /srv/crane run --with mcp python -m crane.server", "crane.server"),
        ("uv run server.py", "server.py"),
        ("pipx run --spec mcp-crane==1 crane", "mcp-crane"),
        ("python3.12 -X dev -m mcp_server_time", "mcp_server_time"),
        ("python -c 'import crane'", "python"),
        ("/opt/crane/bin/crane-mcp --port 1", "crane-mcp"),
        ("npx", "npx"),
        ("bash -c 'unclosed \"quote'", "unclosed"),
    ],
)
def test_a_program_is_named_behind_its_runners(command_line: str, name: str) -> None:
    """The forms are those of clients' guides and of the servers' own pages."""
    assert find_program(shlex.split(command_line)).name == name


def test_a_container_shows_its_variables_and_volumes() -> None:
    """Paths in a container are no paths of the machine."""
    program = find_program(shlex.split("docker run -i -e MEMORY_FILE_PATH=/data/graph.json --mount type=volume,dst=/data mcp/memory --log"))

    assert program.is_container
    assert program.has_volume
    assert program.env == {"MEMORY_FILE_PATH": "/data/graph.json"}
    assert program.args == ("--log",)
