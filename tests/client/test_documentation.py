"""The examples of the client's page run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.deadlines import HANG_S
from tests.documentation import ROOT, blocks
from tests.processes import run_server

PAGE = ROOT / "docs" / "how-to" / "python-client.md"


def test_the_examples_of_the_page_run(tmp_path: Path) -> None:
    """Every snippet is run, in order, as one program."""
    program = "\n".join(block.text for block in blocks(PAGE) if block.language == "python")
    with run_server(tmp_path / "data") as server:
        variables = os.environ | {"ROOKERY_URL": server.url, "ROOKERY_KEY": server.keys["api_key"]}
        run = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, timeout=HANG_S, check=False)

    assert (run.returncode, run.stderr) == (0, "")
    assert "We deploy on Tuesdays." in run.stdout
    assert "no such memory" in run.stdout
    assert "All quiet." in run.stdout
    assert "Rook 2." in run.stdout
