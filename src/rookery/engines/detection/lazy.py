"""A detector that loads its model with the first text, so that the start of the server does not wait for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
