"""
The proxies of deploy/, as programs in front of a server. Only addresses, certificates and time limits of the files are replaced.

The programs are those of `make proxies`, or of the machine. Debian 12 has no Traefik, so it is used where it is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import httpx2
import pytest

from tests.certificates import write_certificate
from tests.deadlines import HANG_S
from tests.deploy.files import DEPLOY, ROOT

_INSTALLED = Path(os.environ.get("PROXIES") or ROOT / ".venv" / "proxies").resolve()
PROGRAMS = os.pathsep.join([str(_INSTALLED / "bin"), os.environ.get("PATH", "")])
IDLE_LIMIT_S = 12
"""The time without a byte after which the proxies of the tests close a stream, in place of the limit of their files."""
_LIMIT_S = 620

PREFIX = "/rookery"
PREFIX_LINES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "nginx": (
        ("upstream rookery {", "map $request_uri $rookery_path { ~^/rookery(?<rest>/.*)$ $rest; }\n\nupstream rookery {"),
        ("location / {", "location /rookery/ {"),
        ("proxy_pass http://rookery;", "proxy_pass http://rookery$rookery_path;"),
    ),
    "caddy": (("\treverse_proxy {", "\turi path_regexp ^/rookery/ /\n\treverse_proxy {"),),
    "haproxy": (("    default_backend rookery", "    http-request replace-path ^/rookery(/.*) \\1\n    default_backend rookery"),),
    "apache2": (('ProxyPass "/" ', 'ProxyPass "/rookery/" '),),
    "traefik": (
        ("middlewares: [transport-security]", "middlewares: [transport-security, prefix]"),
        ("  middlewares:\n    transport", "  middlewares:\n    prefix:\n      stripPrefix: {prefixes: [/rookery]}\n    transport"),
    ),
}
"""The lines of the files that are replaced if Rookery has a path, and their replacements, as the guide has them."""


@dataclass(frozen=True, slots=True)
class Site:
    """
    The addresses of one proxy.

    Attributes:
        port: The port with TLS.
        plain_port: The port that redirects to it.
        upstream: The port of Rookery.
        prefix: The path of Rookery, or empty.
    """

    folder: Path
    certificate: Path
    port: int
    plain_port: int
    upstream: int
    prefix: str = ""

    def read(self, proxy: str, file: str) -> str:
        """Return a file of deploy/ with the addresses of this site."""
        text = (DEPLOY / file).read_text(encoding="utf-8")
        if self.prefix:
            for line, replacement in PREFIX_LINES[proxy]:
                text = text.replace(line, replacement)
        text = text.replace(f"{_LIMIT_S}s", f"{IDLE_LIMIT_S}s").replace(f"timeout={_LIMIT_S}", f"timeout={IDLE_LIMIT_S}")
        text = text.replace("rookery.example.org", "127.0.0.1").replace("127.0.0.1:8400", f"127.0.0.1:{self.upstream}")
        return re.sub(r"/etc/ssl/rookery/\w+\.pem", str(self.certificate), text)

    def write(self, file: str, text: str) -> Path:
        """Write a file into the folder of the proxy."""
        path = self.folder / file
        path.write_text(text, encoding="utf-8")
        return path


def _prepare_nginx(site: Site) -> list[str]:
    text = re.sub(r"listen \[::\]:.*;", "", site.read("nginx", "nginx.conf"))
    text = text.replace("listen 80;", f"listen 127.0.0.1:{site.plain_port};").replace("listen 443 ", f"listen 127.0.0.1:{site.port} ")
    file = site.write("site.conf", text)
    places = "".join(f"{name}_temp_path {site.folder / name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    http = f"access_log off;\n{places}include {file};\n"
    main = f"daemon off;\npid {site.folder}/pid;\nerror_log stderr warn;\nevents {{}}\nhttp {{\n{http}}}\n"
    return ["nginx", "-e", "stderr", "-c", str(site.write("nginx.conf", main))]


def _prepare_caddy(site: Site) -> list[str]:
    options = f"admin off\n\tdefault_bind 127.0.0.1\n\thttp_port {site.plain_port}\n\thttps_port {site.port}\n"
    text = site.read("caddy", "Caddyfile").replace("\tgrace_period", f"\t{options}\tgrace_period", 1)
    text = text.replace("{$PUBLIC_HOST} {", f"127.0.0.1 {{\n\ttls {site.certificate} {site.certificate}").replace(
        "{$UPSTREAM}", f"127.0.0.1:{site.upstream}"
    )
    return ["caddy", "run", "--config", str(site.write("Caddyfile", text)), "--adapter", "caddyfile"]


def _prepare_haproxy(site: Site) -> list[str]:
    text = site.read("haproxy", "haproxy.cfg")
    text = text.replace("bind :80", f"bind 127.0.0.1:{site.plain_port}").replace("bind :443", f"bind 127.0.0.1:{site.port}")
    return ["haproxy", "-db", "-f", str(site.write("haproxy.cfg", text))]


def _prepare_apache(site: Site) -> list[str]:
    modules = next(place for root in (_INSTALLED, Path("/")) if (place := root / "usr" / "lib" / "apache2" / "modules").is_dir())
    names = "mpm_event authz_core alias headers reqtimeout ssl http2 proxy proxy_http".split()
    head = "".join(f"LoadModule {name}_module {modules}/mod_{name}.so\n" for name in names)
    head += f"ServerName localhost\nServerRoot {site.folder}\nDefaultRuntimeDir {site.folder}\n"
    head += f"PidFile {site.folder}/pid\nErrorLog /dev/stderr\n"
    head += "User nobody\nGroup nogroup\n" if os.geteuid() == 0 else ""
    head += f"Listen 127.0.0.1:{site.plain_port}\nListen 127.0.0.1:{site.port}\n"
    text = site.read("apache2", "apache.conf").replace("*:80>", f"*:{site.plain_port}>").replace("*:443>", f"*:{site.port}>")
    return ["apache2", "-DFOREGROUND", "-f", str(site.write("apache.conf", head + text))]


def _prepare_traefik(site: Site) -> list[str]:
    routes = site.write("traefik-routes.yaml", site.read("traefik", "traefik-routes.yaml"))
    text = site.read("traefik", "traefik.yaml").replace("/etc/traefik/traefik-routes.yaml", str(routes))
    text = text.replace('":80"', f'"127.0.0.1:{site.plain_port}"').replace('":443"', f'"127.0.0.1:{site.port}"')
    return ["traefik", f"--configFile={site.write('traefik.yaml', text)}"]


PREPARE: Mapping[str, Callable[[Site], list[str]]] = {
    "nginx": _prepare_nginx,
    "caddy": _prepare_caddy,
    "haproxy": _prepare_haproxy,
    "apache2": _prepare_apache,
    "traefik": _prepare_traefik,
}
"""Functions that write the files of each proxy, by the name of its program, and return its command."""


def free_port() -> int:
    """Return an unused port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return cast("int", listening.getsockname()[1])


@contextmanager
def run_proxy(name: str, folder: Path, upstream: int, *, prefix: str = "") -> Generator[Site]:
    """Run a proxy in front of the server at the port *upstream* until the block ends. Skip the test if it is not installed."""
    if shutil.which(name, path=PROGRAMS) is None:
        pytest.skip(f"{name} is not installed: make proxies")
    folder.mkdir(mode=0o755)
    site = Site(folder, write_certificate(folder / "certificate.pem"), free_port(), free_port(), upstream, prefix)
    words = PREPARE[name](site)
    log = folder / "log"
    with log.open("ab") as output:
        environment = {"PATH": PROGRAMS, "HOME": str(folder)}
        program = str(shutil.which(words[0], path=PROGRAMS))
        process = subprocess.Popen([program, *words[1:]], stdout=output, stderr=output, env=environment)
        try:
            _wait_until_ready(site, process, log)
            yield site
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_ready(site: Site, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for an answer of the server. Traefik listens before it has read its routes and certificate."""
    deadline = time.monotonic() + HANG_S
    context = ssl.create_default_context(cafile=site.certificate)
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if httpx2.get(f"https://127.0.0.1:{site.port}{site.prefix}/healthz", verify=context, timeout=HANG_S).is_success:
                return
        except httpx2.TransportError:
            pass
        time.sleep(0.05)
    pytest.fail(f"the proxy did not start:\n{log.read_text(encoding='utf-8')}")
