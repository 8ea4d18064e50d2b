"""The engine of `scoring.ports.AiDetector`: a linear model over hashed features, computed with numpy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rookery.engines.detection.lazy import LazyDetector

if TYPE_CHECKING:
    from rookery.engines.detection.detector import Detector

MODEL_FOLDER = Path(__file__).parent / "data"


def open(folder: Path = MODEL_FOLDER) -> LazyDetector:  # noqa: A001 - each engine folder has one
    """Return the detector with the model in *folder*. Fast: the first text loads the model."""

    def load() -> Detector:
        from rookery.engines.detection.detector import Detector  # imports numpy, in the thread that scores the first text
        from rookery.engines.detection.model import TrainedModel

        return Detector(TrainedModel.load(folder))

    return LazyDetector(load)
