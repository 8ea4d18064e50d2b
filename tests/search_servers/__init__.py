"""
Real nodes of Elasticsearch and OpenSearch for tests, from the jars of a Maven registry. They need `mvn` once, and a JDK 21 or newer.

Elasticsearch's own server is published without the modules of its distribution. `CommonPlugin.java` replaces two of them: the analyzer
`english`, which is Lucene's with its defaults, and `GET /`. OpenSearch is complete.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from filelock import FileLock

from tests.deadlines import HANG_S
from tests.postgres import free_port

Kind = Literal["elasticsearch", "opensearch"]

_HERE = Path(__file__).parent
_CACHE = Path(sys.prefix) / "search-servers"
_MIN_JAVA = 21
_SOURCES: dict[Kind, dict[str, str]] = {
    "elasticsearch": {"StartNode": "classes", "CommonPlugin": "common"},
    "opensearch": {"StartOpenSearch": "classes"},
}
_LOGGING = """
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1.} %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""
_JVM_OPTIONS = (
    "-Xms512m -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData --enable-native-access=ALL-UNNAMED -Dfile.encoding=UTF-8"
).split()
"""A small heap, one collector thread and one compiler: the node starts in 6 s of CPU and takes 350 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchNode:
    """A running node."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def run_search_node(kind: Kind, data: Path, *, port: int = 0) -> Generator[SearchNode]:
    """Run a node until the end of the block. Run again with the same *data*, it has the same indices. Skips without Maven or a JDK."""
    java_home = _find_java_home()
    home = _install(kind, java_home)
    port = port or free_port()
    logging = f"-Dlog4j2.configurationFile={home / 'config' / 'log4j2.properties'}"
    arguments = ["StartNode", home, data, port] if kind == "elasticsearch" else ["StartOpenSearch", data, port]
    command = [java_home / "bin" / "java", *_JVM_OPTIONS, logging, "-cp", f"{home / 'classes'}:{home / 'lib'}/*", *map(str, arguments)]
    log = data / "node.log"
    with log.open("ab") as output, subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL) as process:
        try:
            _wait_until_ready(f"http://127.0.0.1:{port}/_cluster/health?wait_for_status=yellow&timeout=1s", process, log)
            yield SearchNode(port=port, process=process)
        finally:
            process.kill()


@contextmanager
def make_data_folder() -> Generator[Path]:
    """Create a folder for a node, in memory where the system has a place for that. Creating an index writes many small files."""
    memory = Path("/dev/shm")  # noqa: S108 - only the place; the folder gets a random name
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _find_java_home() -> Path:
    on_path = shutil.which("javac")
    candidates = [os.environ.get("JAVA_HOME"), on_path and Path(on_path).resolve().parents[1], *sorted(Path("/usr/lib/jvm").glob("*"))]
    for home in (Path(candidate) for candidate in candidates if candidate):
        if (home / "bin" / "javac").is_file():
            answer = subprocess.run([home / "bin" / "javac", "-version"], capture_output=True, text=True, check=True, timeout=HANG_S)
            version = re.search(r"\d+", answer.stdout + answer.stderr)
            if version is not None and int(version[0]) >= _MIN_JAVA:
                return home
    pytest.skip(f"no JDK {_MIN_JAVA} or newer")


def _install(kind: Kind, java_home: Path) -> Path:
    """Fetch the jars of *kind* once and lay them out. Return the folder."""
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip("no Maven")
    _CACHE.mkdir(exist_ok=True)
    home = _CACHE / kind
    with FileLock(_CACHE / f"{kind}.lock", timeout=HANG_S):
        if not (home / "ready").exists():
            shutil.rmtree(home, ignore_errors=True)
            fetch = [maven, "--batch-mode", "--quiet", "--file", _HERE / "pom.xml", "--activate-profiles", kind,
                     "dependency:copy-dependencies", f"-DoutputDirectory={home / 'lib'}", "-DincludeScope=runtime"]  # fmt: skip
            fetched = subprocess.run(fetch, capture_output=True, text=True, check=False, timeout=HANG_S)
            if fetched.returncode:
                pytest.skip(f"the jars cannot be fetched: {fetched.stdout[-300:]}")
            _lay_out(kind, home, java_home)
            (home / "ready").touch()
    return home


def _lay_out(kind: Kind, home: Path, java_home: Path) -> None:
    (home / "config").mkdir()
    (home / "config" / "log4j2.properties").write_text(_LOGGING)
    for source, target in _SOURCES[kind].items():
        compiler = [java_home / "bin" / "javac", "-nowarn", "-cp", f"{home / 'lib'}/*", "-d", home / target, _HERE / f"{source}.java"]
        subprocess.run(compiler, check=True, timeout=HANG_S)
    if kind != "elasticsearch":
        return
    version = next((home / "lib").glob("elasticsearch-[0-9]*.jar")).stem.partition("-")[2]
    for name, plugin in {"transport-netty4": "org.elasticsearch.transport.netty4.Netty4Plugin", "common": "CommonPlugin"}.items():
        module = home / "modules" / name
        module.mkdir(parents=True)
        fields = {"name": name, "description": name, "version": version, "elasticsearch.version": version, "java.version": _MIN_JAVA,
                  "classname": plugin}  # fmt: skip
        (module / "plugin-descriptor.properties").write_text("".join(f"{key}={value}\n" for key, value in fields.items()))
    for jar in _iter_network_jars(home / "lib"):  # a class of a module may not be on the server's class path
        jar.rename(home / "modules" / "transport-netty4" / jar.name)
    (home / "plugins").mkdir()
    archive = [java_home / "bin" / "jar", "cf", home / "modules" / "common" / "common.jar", "-C", home / "common", "."]
    subprocess.run(archive, check=True, timeout=HANG_S)


def _iter_network_jars(folder: Path) -> Iterator[Path]:
    for pattern in ("netty-*.jar", "transport-netty4-*.jar"):
        yield from list(folder.glob(pattern))


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + HANG_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=HANG_S):  # noqa: S310 - our own address
                return
        except OSError:  # refused, or 408 and 503 while it elects itself
            time.sleep(0.1)
    pytest.fail(f"the node did not start:\n{log.read_text()[-2000:]}")
