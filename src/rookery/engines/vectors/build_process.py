"""Build list files of large workspaces, one at a time, each in a child process."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import os
import sys

import structlog

from rookery.engines.vectors.ivf_build import EXIT_BUSY, BuildRequest

_TERM_GRACE_S = 5.0
_log = structlog.stdlib.get_logger("rookery.vectors")

_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def _build_environment() -> dict[str, str]:
    """Return the environment of the process, without Rookery's settings, since some are secrets."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")} | dict.fromkeys(_THREAD_VARIABLES, "1")


class BuildOutcome(enum.Enum):
    """The outcome of a build. Failures are logged."""

    DONE = enum.auto()
    ELSEWHERE = enum.auto()
    """Another process is building."""
    FAILED = enum.auto()


class BuildProcess:
    """The build process, if one runs. All calls come from one event loop."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._is_closed = False

    async def run(self, request: BuildRequest) -> BuildOutcome:
        """Build the file of *request* and return the outcome."""
        async with self._lock:
            if self._is_closed:
                return BuildOutcome.FAILED
            try:
                self._process = process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "rookery.engines.vectors.ivf_build",
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.PIPE,
                    env=_build_environment(),
                )
            except OSError as error:
                _log.warning("vectors.ivf_build_failed", workspace_id=request.workspace_id, reason=str(error))
                return BuildOutcome.FAILED
            if process.stdin is None or process.stderr is None:
                raise RuntimeError("the build process has no pipes")
            try:
                process.stdin.write(request.to_json_line() + b"\n")
                output = await process.stderr.read()
                code = await process.wait()
            finally:
                await self._end(process)
            if code not in {0, EXIT_BUSY} and not self._is_closed:
                lines = output.decode(errors="replace").strip().splitlines()
                _log.warning("vectors.ivf_build_failed", workspace_id=request.workspace_id, reason=lines[-1] if lines else f"exit {code}")
            return {0: BuildOutcome.DONE, EXIT_BUSY: BuildOutcome.ELSEWHERE}.get(code, BuildOutcome.FAILED)

    async def close(self) -> None:
        """Stop a running build. It starts again from the beginning at another time."""
        self._is_closed = True
        if self._process is not None:
            await self._end(self._process)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin is not None:
            process.stdin.close()
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _TERM_GRACE_S)
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
