"""
Remove from this environment what a server never reads: a step of `make install`.

The embedding model stays once, as 8-bit integers, in the folder where `model_files` finds it, and the package with its weights goes;
`make dev` installs that package again. Libraries lose their symbols for debuggers. At the end the modules of the server are imported: this
compiles what they need, and fails the installation if something is missing.
"""

from __future__ import annotations

import importlib
import pkgutil
import shutil
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import rookery
import rookery_client
from distribution.build_wheel import write_bundle
from rookery.engines.embedders import model_files

UNUSED = (
    "*/tests",
    "*/*/tests",
    "onnxruntime/capi/libonnxruntime.so.*",  # the same library for programs in C; the module for Python contains its own
    *(f"onnxruntime/{name}" for name in ("quantization", "tools", "transformers")),
    "pip/**/__pycache__",  # pip runs seldom
    "zstandard/_cffi.*",  # for Pythons without C modules
)
"""Files and folders in the folder of packages."""

UNUSED_PACKAGES = (model_files.DISTRIBUTION, "setuptools")
"""Python 3.11 puts setuptools into each environment; newer ones do not."""

_NOT_IMPORTED = ("__main__", "migrations.env", "traces.otlp", "notification_channels.apprise_urls")
"""Endings of modules that run something, or need an extra."""

_HEADER, _SEGMENT = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQQQ")
_ELF_64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"


def main() -> None:
    """Slim the environment of this interpreter."""
    shutil.rmtree(model_files.INSTALLED_BUNDLE, ignore_errors=True)
    write_bundle(model_files.INSTALLED_BUNDLE)
    subprocess.run([sys.executable, "-m", "pip", "uninstall", "--quiet", "--yes", *UNUSED_PACKAGES], check=True, stderr=subprocess.DEVNULL)
    packages = Path(sysconfig.get_path("platlib"))
    for pattern in UNUSED:
        for path in list(packages.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in packages.rglob("*.so"):
        remove_symbols(path)
    for name in ("mcp_server_time.server", *iter_modules()):
        importlib.import_module(name)


def remove_symbols(path: Path) -> None:
    """
    Cut a library behind the last part that is loaded: the symbols for debuggers, and the table of sections.

    The file is replaced as a whole, so a process that has loaded it keeps the old one. Other files than ELF of 64 bits stay as they are.
    """
    data = path.read_bytes()
    if not data.startswith(_ELF_64_LITTLE_ENDIAN):
        return
    header = list(_HEADER.unpack_from(data))
    first_segment, segment_count = header[5], header[10]
    segments = [_SEGMENT.unpack_from(data, first_segment + number * _SEGMENT.size) for number in range(segment_count)]
    loaded_end = max(first_segment + segment_count * _SEGMENT.size, *(offset + size for _, _, offset, _, _, size, _, _ in segments))
    if header[6] < loaded_end:  # patchelf has put the table between parts that are loaded
        return
    header[6] = header[12] = header[13] = 0  # no table of sections
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(_HEADER.pack(*header) + data[_HEADER.size : loaded_end])
    shutil.copymode(path, new)
    new.replace(path)


def iter_modules() -> Iterator[str]:
    """Yield the modules of the server and of the client."""
    for package in (rookery, rookery_client):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(_NOT_IMPORTED):
                yield module.name


if __name__ == "__main__":
    main()
