"""Open an index and build its IVF file for the IVF suites."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np

from rookery.engines.vectors.embedded import EmbeddedVectorIndex
from rookery.engines.vectors.ivf_build import BuildRequest, build
from rookery.engines.vectors.search import IndexLimits
from rookery.memory.models import Vector
from rookery.memory.ports import ModelVersion


class OpenIndex(Protocol):
    """Opens another instance of the index, as a separate process or a restart would."""

    def __call__(self, limits: IndexLimits | None = None) -> EmbeddedVectorIndex: ...


def open_index(folder: Path, *, model: str = "small/1", dimension: int = 4, limits: IndexLimits | None = None) -> EmbeddedVectorIndex:
    """Open the index of *folder*."""
    return EmbeddedVectorIndex(folder / "vectors.db", model=model, dimension=dimension, limits=limits)


def make_build_request(folder: Path, *, workspace_id: int = 1, model: str = "small/1", dimension: int = 4) -> BuildRequest:
    """Return the build request that a large workspace would create."""
    model_version = ModelVersion(model=model, dimension=dimension)
    return BuildRequest(
        database=folder / "vectors.db",
        workspace_id=workspace_id,
        model_version=model_version,
        known_change=0,
    )


def build_ivf_file(folder: Path, *, workspace_id: int = 1, model: str = "small/1", dimension: int = 4) -> Path:
    """Build the IVF file and return its path, or *folder* if there was nothing to build."""
    (folder / "vectors.lists").mkdir(exist_ok=True)
    build(make_build_request(folder, workspace_id=workspace_id, model=model, dimension=dimension))
    return max((folder / "vectors.lists").glob(f"{workspace_id}-*.lists"), default=folder)


def clustered_vectors(count: int, *, dimension: int = 16, seed: int = 3) -> list[Vector]:
    """Return clustered vectors, similar to those of memories."""
    random_source = np.random.default_rng(seed)
    centres = random_source.standard_normal((40, dimension))
    rows = centres[random_source.integers(0, 40, count)] + 0.5 * random_source.standard_normal((count, dimension))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return [row.tobytes() for row in rows.astype("<f4")]
