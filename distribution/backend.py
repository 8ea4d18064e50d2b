"""The build backend, called without pip."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run_hook(hook: str, sources: Path, out: Path) -> None:
    """
    Call a PEP 517 hook of the build backend, which is installed from the lock and finds its own program on PATH.

    Raises:
        SystemExit: The hook failed.
    """
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    call = f"import uv_build; uv_build.{hook}({str(out)!r})"
    run = subprocess.run([sys.executable, "-c", call], cwd=sources, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"{hook} failed:\n{run.stdout}{run.stderr}")
