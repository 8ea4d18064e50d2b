"""
Build the wheel, the source archive and the wheel of the client into dist/: `make dist`. The first two contain the embedding model.

The sources are copied to a temporary folder. There the int8 graph is built from the weights' package, which requirements.lock pins by its
hash, and the build backend runs on that copy. The checkout is not changed. The same sources give the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

from distribution.backend import ROOT, run_hook
from distribution.client.wheel import build_client
from rookery.engines.embedders import bert, minilm, model_files, weights

NOTICE = Path(__file__).with_name("model-notice.txt")
REVISION = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"
"""Revision of sentence-transformers/all-MiniLM-L6-v2 whose files have the digests in `model_files`."""

IGNORED_FILES = shutil.ignore_patterns(".*", "__pycache__", "dist", "data", "node_modules", "*.egg-info")


def _is_of_this_build(provenance: model_files.Provenance) -> bool:
    """Return whether a model was made from the weights, and by the rules, of this source."""
    digests = (provenance.weights_sha256, provenance.tokenizer_sha256)
    is_same_model = digests == (model_files.WEIGHTS_SHA256, model_files.TOKENIZER_SHA256) and provenance.revision == REVISION
    return is_same_model and provenance.graph_format == bert.GRAPH_FORMAT


def write_bundle(folder: Path, *, installed_folder: Path = model_files.INSTALLED_BUNDLE) -> None:
    """
    Write the model that a wheel contains into *folder*: graph, tokenizer, licence, notice and provenance.

    Args:
        installed_folder: Where `make install` has put these files. Then the weights are not read: that environment has none.

    Raises:
        SystemExit: The digests of the installed weights differ from those of the model's own repository.
    """
    installed = model_files.find_bundle([installed_folder])
    if installed is not None and _is_of_this_build(installed.provenance):
        installed.verify()
        shutil.copytree(installed_folder, folder)
        return
    source = model_files.find_weights()
    weights_file, tokenizer = source / "model.safetensors", source / "tokenizer.json"
    for path, expected in ((weights_file, model_files.WEIGHTS_SHA256), (tokenizer, model_files.TOKENIZER_SHA256)):
        if (found := _sha256(path.read_bytes())) != expected:
            sys.exit(f"{path.name} of {model_files.DISTRIBUTION} has SHA-256 {found}, expected {expected}; nothing was built")
    graph = b"".join(bert.write_graph(weights.SafetensorsFile(weights_file), minilm.CONFIG, "int8"))
    provenance = model_files.Provenance(
        model="sentence-transformers/all-MiniLM-L6-v2",
        revision=REVISION,
        license="Apache-2.0",
        carried_by=f"{model_files.DISTRIBUTION}=={model_files.VERSION}",
        weights_sha256=model_files.WEIGHTS_SHA256,
        tokenizer_sha256=model_files.TOKENIZER_SHA256,
        graph_format=bert.GRAPH_FORMAT,
        graph_sha256=_sha256(graph),
    )
    folder.mkdir(parents=True)
    (folder / model_files.GRAPH_FILE).write_bytes(graph)
    shutil.copyfile(tokenizer, folder / model_files.TOKENIZER_FILE)
    shutil.copyfile(ROOT / "LICENSE", folder / "LICENSE.txt")
    shutil.copyfile(NOTICE, folder / "NOTICE.txt")
    (folder / model_files.PROVENANCE_FILE).write_text(provenance.to_json(), encoding="utf-8")


def build(out: Path, *, with_sources: bool = True) -> list[Path]:
    """
    Build into *out* and return the new files: the source archive if *with_sources*, and the wheel.

    Raises:
        SystemExit: The weights are not the expected ones, or the build backend failed.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rookery-build-") as temporary:
        copy = Path(temporary) / "rookery"
        shutil.copytree(ROOT, copy, ignore=IGNORED_FILES)
        write_bundle(copy / "src" / "rookery" / "engines" / "embedders" / "bundled")
        output = Path(temporary) / "made"
        output.mkdir()
        for hook in ["build_sdist"] * with_sources + ["build_wheel"]:
            run_hook(hook, copy, output)
        results = list[Path]()
        for path in sorted(output.iterdir()):
            results.append(out / path.name)
            shutil.copyfile(path, results[-1])
    return results


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def main() -> None:
    """Build, and print each file with its size and digest."""
    parser = argparse.ArgumentParser(description="Build the wheel, the source archive and the wheel of the client.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--wheel-only", action="store_true")
    arguments = parser.parse_args()
    paths = build(arguments.out, with_sources=not arguments.wheel_only)
    if not arguments.wheel_only:
        paths.append(build_client(arguments.out))
    for path in paths:
        data = path.read_bytes()
        print(f"{path.name}  {len(data) / 1e6:.1f} MB  sha256 {_sha256(data)}")


if __name__ == "__main__":
    main()
