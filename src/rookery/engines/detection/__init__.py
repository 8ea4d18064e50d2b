"""The engine of `scoring.ports.AiDetector`: a linear model over hashed features, computed with numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from rookery.scoring.detection import DetectionModel, DetectionResult
from rookery.scoring.plain_text import PlainText

if TYPE_CHECKING:
    from rookery.engines.detection.detector import Detector


class LazyDetector:
    """A `scoring.ports.AiDetector` that is loaded once, by the first thread that needs it."""

    def __init__(self, load: Callable[[], Detector]) -> None:
        self._load = load
        self._lock = Lock()
        self._detector: Detector | None = None

    @property
    def is_loaded(self) -> bool:
        """True if the model is in memory."""
        return self._detector is not None

    @property
    def model(self) -> DetectionModel:
        return self._loaded().model

    def detect(self, text: str) -> DetectionResult:
        return self._loaded().detect(text)

    def detect_prose(self, plain: PlainText, *, explain: bool = True) -> DetectionResult:
        return self._loaded().detect_prose(plain, explain=explain)

    def detect_many(self, texts: Sequence[str]) -> list[DetectionResult]:
        return self._loaded().detect_many(texts)

    def _loaded(self) -> Detector:
        if self._detector is None:
            with self._lock:
                if self._detector is None:
                    self._detector = self._load()
        return self._detector


MODEL_FOLDER = Path(__file__).parent / "data"


def open(folder: Path = MODEL_FOLDER) -> LazyDetector:  # noqa: A001 - each engine folder has one
    """Return the detector with the model in *folder*. Fast: the first text loads the model."""

    def load() -> Detector:
        from rookery.engines.detection.detector import Detector  # imports numpy, in the thread that scores the first text
        from rookery.engines.detection.model import TrainedModel

        return Detector(TrainedModel.load(folder))

    return LazyDetector(load)
