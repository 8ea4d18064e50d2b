"""What the suites of large workspaces share: how an index is opened, and how its lists are built at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from rookery.engines.vectors.embedded import EmbeddedVectorIndex
from rookery.engines.vectors.ivf_build import BuildRequest, build
from rookery.memory.models import Vector
from rookery.memory.ports import ModelVersion

Open = Callable[[], EmbeddedVectorIndex]


def open_in(folder: Path, *, model: str = "small/1", dimension: int = 4) -> EmbeddedVectorIndex:
    """Open the index of *folder*."""
    return EmbeddedVectorIndex(folder / "vectors.db", model=model, dimension=dimension)


def order_in(folder: Path, *, workspace_id: int = 1, model: str = "small/1", dimension: int = 4) -> BuildRequest:
    """Order what a large workspace would order by itself."""
    generation = ModelVersion(model=model, dimension=dimension)
    return BuildRequest(
        database=folder / "vectors.db", folder=folder / "vectors.lists", workspace_id=workspace_id, model_version=generation, known_change=0
    )


def list_now(folder: Path, *, workspace_id: int = 1, model: str = "small/1", dimension: int = 4) -> Path:
    """Build the lists and return their file, if there was anything to build."""
    (folder / "vectors.lists").mkdir(exist_ok=True)
    build(order_in(folder, workspace_id=workspace_id, model=model, dimension=dimension))
    return max((folder / "vectors.lists").glob(f"{workspace_id}-*.lists"), default=folder)


def clustered_vectors(count: int, *, dimension: int = 16, seed: int = 3) -> list[Vector]:
    """Make vectors in clumps, as memories are."""
    dice = np.random.default_rng(seed)
    centres = dice.standard_normal((40, dimension))
    rows = centres[dice.integers(0, 40, count)] + 0.5 * dice.standard_normal((count, dimension))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return [row.tobytes() for row in rows.astype("<f4")]
