"""The services of scoring, each built on first use, and the registration of the domain. It has no tables: texts are not stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from rookery.kernel.domain import Domain
from rookery.kernel.errors import RookeryError
from rookery.kernel.runtime import Runtime
from rookery.kernel.schema import to_json
from rookery.scoring.api import ScoringApi
from rookery.scoring.judging import SycophancyJudge
from rookery.scoring.models import ROUTE_PREFIX, Message, MessageRole, ScoredText
from rookery.scoring.ports import AiDetector, LanguageModel
from rookery.scoring.schemas import serialize_score
from rookery.scoring.scorer import ContentScorer


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringPorts:
    """
    The implementations that scoring gets from engines and other domains.

    Attributes:
        open_detector: Returns the engine of AI detection.
        find_language_model: Returns the language model of the judge; None if none is configured.
        judge_errors: The errors of its calls.
    """

    open_detector: Callable[[], AiDetector]
    find_language_model: Callable[[], LanguageModel | None]
    judge_errors: tuple[type[RookeryError], ...] = ()


class ConversationMessage(Protocol):
    """A message of another domain."""

    @property
    def role(self) -> MessageRole: ...

    @property
    def content(self) -> str: ...


class ScoringServices:
    """The scorer and its judge."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._ports = runtime.use(ScoringPorts)

    @cached_property
    def scorer(self) -> ContentScorer:
        scorer = ContentScorer(self._ports.open_detector, shares=self._runtime.shares)
        self._runtime.on_close(scorer.close)
        return scorer

    async def score_output(self, workspace_id: int, messages: Sequence[ConversationMessage], output: str) -> Mapping[str, object]:
        """Return the scores of *output* as the answer to *messages*, as `POST /v1/score/content` returns them."""
        history = [Message(role=message.role, content=message.content) for message in messages]
        prompt = history.pop().content if history and history[-1].role == "user" else None
        score = await self.scorer.score(ScoredText(text=output, prompt=prompt, history=tuple(history)), workspace_id=workspace_id)
        return to_json(serialize_score(score, base_url=self._runtime.settings.public_url_of(ROUTE_PREFIX), explain=True))

    @property
    def judge_errors(self) -> tuple[type[RookeryError], ...]:
        """The errors of a judgement that the language model causes."""
        return self._ports.judge_errors

    @cached_property
    def judge(self) -> SycophancyJudge:
        return SycophancyJudge(self._ports.find_language_model())


def build(runtime: Runtime) -> Domain:
    """Return the domain. Nothing is started, and no weights are loaded."""
    services = runtime.use(ScoringServices)
    api = ScoringApi(services.scorer, services.judge, runtime.settings.public_url_of(ROUTE_PREFIX), services.judge_errors)
    return Domain(operations=[(ROUTE_PREFIX, api.operations())], tool_servers=[api.server()])
