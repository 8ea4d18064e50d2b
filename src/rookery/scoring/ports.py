"""The ports of scoring: AI detection, which an engine implements, and the language model of the judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rookery.access.models import Caller
from rookery.scoring.detection import DetectionModel, DetectionResult
from rookery.scoring.plain_text import PlainText


class AiDetector(Protocol):
    """
    A model that estimates whether a text was written by a language model.

    It computes for milliseconds and waits for nothing, so an event loop calls it in a thread. Several threads may use it at the same time.
    """

    @property
    def model(self) -> DetectionModel:
        """Name and version of the model. Loads its weights if they are not loaded."""
        ...

    def detect(self, text: str) -> DetectionResult:
        """Return the result for *text*. Raises nothing, whatever the text contains."""
        ...

    def detect_prose(self, plain: PlainText, *, explain: bool = True) -> DetectionResult:
        """
        Return the result for a text whose prose was extracted before.

        Args:
            plain: The prose.
            explain: Compute the signals, which takes a quarter of the time.
        """
        ...

    def detect_many(self, texts: Sequence[str]) -> list[DetectionResult]:
        """Return the result of each text, in order. Each is equal to that of `detect`."""
        ...


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The answer of a language model, and its name."""

    model: str
    text: str


class LanguageModel(Protocol):
    """A language model that judges answers. Another domain implements it."""

    async def answer(self, caller: Caller, instructions: str, document: str, *, schema: Mapping[str, object]) -> ModelAnswer:
        """
        Return an answer to *document* in JSON that matches *schema*. The call is charged to *caller*.

        Raises:
            RookeryError: A budget of the caller does not cover the call, the provider failed, or its answer does not match.
        """
        ...
