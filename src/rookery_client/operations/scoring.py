"""
Operations of `client.scoring`.

Written by `make client` from the declarations of the operations. Change those, not this file.
"""

# fmt: off

from __future__ import annotations

from collections.abc import Mapping, Sequence


from rookery_client.calls import UNSET, Call, Unset, given
from rookery_client.generated import inputs, models
from rookery_client.sessions import AsyncSession, Session


class ScoringOperations:
    """Operations of `client.scoring`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def score_content(
        self, *, text: str | Unset | None = UNSET, response: str | Unset | None = UNSET, prompt: str | Unset | None = UNSET,
        history: Sequence[inputs.HistoryMessageBody] | Unset | None = UNSET, counterpart: str | Unset | None = UNSET,
        explain: bool | Unset = UNSET, judge: bool | Unset = UNSET,
    ) -> models.Score:
        """Score a text."""
        return self._session.send(Call(
            operation="score_content", method="POST", path="/v1/score/content", result=models.Score,
            body=given(text=text, response=response, prompt=prompt, history=history, counterpart=counterpart, explain=explain, judge=judge),
        ))

    def score_batch(self, *, items: Sequence[Mapping[str, object]], explain: bool | Unset = UNSET) -> models.ScoreBatch:
        """Score many texts."""
        return self._session.send(Call(
            operation="score_batch", method="POST", path="/v1/score/batch", result=models.ScoreBatch,
            body=given(items=items, explain=explain),
        ))

    def get_scoring_health(self) -> models.ScoringHealth:
        """Show the models that score."""
        return self._session.send(Call(
            operation="get_scoring_health", method="GET", path="/v1/score/health", result=models.ScoringHealth,
        ))

    def get_ai_detection_card(self) -> str:
        """Show the model card of AI detection."""
        return self._session.send(Call(
            operation="get_ai_detection_card", method="GET", path="/v1/score/cards/ai-detection", result=str, reader="text",
            accept="text/markdown",
        ))

    def get_sycophancy_card(self) -> str:
        """Show the model card of sycophancy."""
        return self._session.send(Call(
            operation="get_sycophancy_card", method="GET", path="/v1/score/cards/sycophancy", result=str, reader="text",
            accept="text/markdown",
        ))


class AsyncScoringOperations:
    """Operations of `client.scoring`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def score_content(
        self, *, text: str | Unset | None = UNSET, response: str | Unset | None = UNSET, prompt: str | Unset | None = UNSET,
        history: Sequence[inputs.HistoryMessageBody] | Unset | None = UNSET, counterpart: str | Unset | None = UNSET,
        explain: bool | Unset = UNSET, judge: bool | Unset = UNSET,
    ) -> models.Score:
        """Score a text."""
        return await self._session.send(Call(
            operation="score_content", method="POST", path="/v1/score/content", result=models.Score,
            body=given(text=text, response=response, prompt=prompt, history=history, counterpart=counterpart, explain=explain, judge=judge),
        ))

    async def score_batch(self, *, items: Sequence[Mapping[str, object]], explain: bool | Unset = UNSET) -> models.ScoreBatch:
        """Score many texts."""
        return await self._session.send(Call(
            operation="score_batch", method="POST", path="/v1/score/batch", result=models.ScoreBatch,
            body=given(items=items, explain=explain),
        ))

    async def get_scoring_health(self) -> models.ScoringHealth:
        """Show the models that score."""
        return await self._session.send(Call(
            operation="get_scoring_health", method="GET", path="/v1/score/health", result=models.ScoringHealth,
        ))

    async def get_ai_detection_card(self) -> str:
        """Show the model card of AI detection."""
        return await self._session.send(Call(
            operation="get_ai_detection_card", method="GET", path="/v1/score/cards/ai-detection", result=str, reader="text",
            accept="text/markdown",
        ))

    async def get_sycophancy_card(self) -> str:
        """Show the model card of sycophancy."""
        return await self._session.send(Call(
            operation="get_sycophancy_card", method="GET", path="/v1/score/cards/sycophancy", result=str, reader="text",
            accept="text/markdown",
        ))
