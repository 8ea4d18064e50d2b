"""
Record a session at a terminal as a picture: `python -m distribution.docs_site.recording`.

The commands run at a real terminal, beside a server on a data folder of their own. `docs/images/terminal.svg` gets what they print.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "images" / "terminal.svg"
WIDTH = 86
_HEIGHT = 40
_LIMIT_S = 120.0

SESSION = (
    'rookery remember "We deploy on Tuesdays, never on Fridays." --type decision',
    'rookery remember "All money amounts are integers in cents." --type convention',
    'rookery recall "When do we ship?" --limit 1',
    "rookery servers check",
)
"""The commands of the picture, in order. A later one may use what an earlier one stored."""

_THEME = TerminalTheme(
    (22, 27, 34),
    (230, 233, 239),
    [(22, 27, 34), (248, 113, 113), (74, 222, 128), (250, 204, 21), (96, 165, 250), (192, 132, 252), (34, 211, 238), (230, 233, 239)],
    [(107, 117, 133), (252, 165, 165), (134, 239, 172), (253, 224, 71), (147, 197, 253), (216, 180, 254), (103, 232, 249), (255, 255, 255)],
)

_FORMAT = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {terminal_width} {terminal_height}" role="img" aria-label="A session at a terminal">
<style>
  .{unique_id}-matrix {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
    font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
  {styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
<rect fill="#161b22" width="{terminal_width}" height="{terminal_height}" rx="10" />
<g transform="translate(12, 10)" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""The format of the picture: Rich's own one names a font of another host."""


def main() -> None:
    """Record the session and write the picture."""
    parser = argparse.ArgumentParser(description="Record docs/images/terminal.svg.")
    parser.add_argument("--out", type=Path, default=PICTURE)
    out: Path = parser.parse_args().out
    out.write_text(draw(record(SESSION)), encoding="utf-8")


def record(commands: Sequence[str]) -> list[tuple[str, str]]:
    """
    Run *commands* beside a server with an empty data folder; return each with what it wrote to the terminal.

    Raises:
        RuntimeError: A command failed, or the server did not start.
    """
    with tempfile.TemporaryDirectory(prefix="rookery-recording-") as name, _run_server(Path(name) / "data") as variables:
        return [(command, _record_command(command, variables)) for command in commands]


def _record_command(command: str, variables: Mapping[str, str]) -> str:
    code, output = run_at_terminal(["/bin/sh", "-c", command], variables)
    if code:
        raise RuntimeError(f"{command} ended with {code}: {output}")
    return output


def draw(session: Sequence[tuple[str, str]]) -> str:
    """Return the picture of a session, as SVG."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True, color_system="truecolor", legacy_windows=False)
        for number, (command, output) in enumerate(session):
            if number:
                console.print()
            console.print(Text.assemble(("$ ", "bright_green"), (command, "bold")))
            console.print(Text.from_ansi(output.rstrip()))
        console.print()  # the margin at the bottom
        return console.export_svg(theme=_THEME, code_format=_FORMAT, unique_id="rookery")


@contextmanager
def _run_server(data_dir: Path) -> Generator[dict[str, str]]:
    """Run a server on *data_dir*; yield the environment of commands beside it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_") and name != "NO_COLOR"}
    variables = {
        **inherited,
        "ROOKERY_DATA_DIR": str(data_dir),
        "PATH": f"{Path(sys.executable).parent}:{inherited.get('PATH', '')}",
        "TERM": "xterm-256color",
    }
    command = [sys.executable, "-m", "rookery", "serve", "--port", "0"]
    with subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + _LIMIT_S
            while not (data_dir / "listening.json").exists():
                if server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the server did not start; it ended with {server.poll()}")
                time.sleep(0.05)
            yield variables
        finally:
            server.terminate()


def run_at_terminal(command: Sequence[str], variables: Mapping[str, str]) -> tuple[int, str]:
    """Run *command* at a terminal of 86 columns; return its exit code and what it wrote there, both streams in order."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", _HEIGHT, WIDTH, 0, 0))
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=variables)
    os.close(terminal)
    output = b""
    try:
        while chunk := os.read(controller, 65536):
            output += chunk
    except OSError:  # Linux reports the end of a terminal as an error
        pass
    finally:
        os.close(controller)
    return process.wait(_LIMIT_S), output.decode().replace("\r\n", "\n")


if __name__ == "__main__":
    main()
