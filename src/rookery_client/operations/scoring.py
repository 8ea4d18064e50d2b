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
        """
        Return the probability that a model wrote a text, and its sycophancy as an answer.

        The text is not stored. A text that cannot be judged is `uncertain`, with the reason. With `judge`, the call at the language
        model is charged to the budgets of content.

        Requires the scope `score:read`.

        Args:
            text: The text, of at most 100,000 characters.
            response: The answer of an assistant, in place of `text`.
            prompt: The user's message that the text answers.
            history: The messages before the prompt, oldest first. A last message of the user is the prompt.
            counterpart: The answer to the same question with the opposite framing.
            explain: Return segments, signals and spans. Default: `true`.
            judge: Also ask the configured language model, which receives the texts. Needs the scope content.write. Default: `false`.
        """
        return self._session.send(Call(
            operation="score_content", method="POST", path="/v1/score/content", result=models.Score,
            body=given(text=text, response=response, prompt=prompt, history=history, counterpart=counterpart, explain=explain, judge=judge),
            repeatable=True,
        ))

    def score_batch(
        self, *, items: Sequence[inputs.ScoreItemBody | Mapping[str, object]], explain: bool | Unset = UNSET,
    ) -> models.ScoreBatch:
        """
        Score up to 500 texts.

        Each text is scored or rejected on its own. `results` has one result or error per text, in the order of the request.

        Requires the scope `score:read`.

        Args:
            items: Texts with the fields of /v1/score/content, except explain and judge.
            explain: Return segments, signals and spans of each text. Default: `true`.
        """
        return self._session.send(Call(
            operation="score_batch", method="POST", path="/v1/score/batch", result=models.ScoreBatch,
            body=given(items=items, explain=explain), repeatable=True,
        ))

    def get_scoring_health(self) -> models.ScoringHealth:
        """
        Return the models with their versions and the addresses of their model cards, and the limits.
        """
        return self._session.send(Call(
            operation="get_scoring_health", method="GET", path="/v1/score/health", result=models.ScoringHealth,
        ))

    def get_ai_detection_card(self) -> str:
        """
        Return the model card of AI detection as Markdown: data, figures and limits.
        """
        return self._session.send(Call(
            operation="get_ai_detection_card", method="GET", path="/v1/score/cards/ai-detection", result=str, reader="text",
            accept="text/markdown",
        ))

    def get_sycophancy_card(self) -> str:
        """
        Return the model card of sycophancy as Markdown: data, figures and limits.
        """
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
        """
        Return the probability that a model wrote a text, and its sycophancy as an answer.

        The text is not stored. A text that cannot be judged is `uncertain`, with the reason. With `judge`, the call at the language
        model is charged to the budgets of content.

        Requires the scope `score:read`.

        Args:
            text: The text, of at most 100,000 characters.
            response: The answer of an assistant, in place of `text`.
            prompt: The user's message that the text answers.
            history: The messages before the prompt, oldest first. A last message of the user is the prompt.
            counterpart: The answer to the same question with the opposite framing.
            explain: Return segments, signals and spans. Default: `true`.
            judge: Also ask the configured language model, which receives the texts. Needs the scope content.write. Default: `false`.
        """
        return await self._session.send(Call(
            operation="score_content", method="POST", path="/v1/score/content", result=models.Score,
            body=given(text=text, response=response, prompt=prompt, history=history, counterpart=counterpart, explain=explain, judge=judge),
            repeatable=True,
        ))

    async def score_batch(
        self, *, items: Sequence[inputs.ScoreItemBody | Mapping[str, object]], explain: bool | Unset = UNSET,
    ) -> models.ScoreBatch:
        """
        Score up to 500 texts.

        Each text is scored or rejected on its own. `results` has one result or error per text, in the order of the request.

        Requires the scope `score:read`.

        Args:
            items: Texts with the fields of /v1/score/content, except explain and judge.
            explain: Return segments, signals and spans of each text. Default: `true`.
        """
        return await self._session.send(Call(
            operation="score_batch", method="POST", path="/v1/score/batch", result=models.ScoreBatch,
            body=given(items=items, explain=explain), repeatable=True,
        ))

    async def get_scoring_health(self) -> models.ScoringHealth:
        """
        Return the models with their versions and the addresses of their model cards, and the limits.
        """
        return await self._session.send(Call(
            operation="get_scoring_health", method="GET", path="/v1/score/health", result=models.ScoringHealth,
        ))

    async def get_ai_detection_card(self) -> str:
        """
        Return the model card of AI detection as Markdown: data, figures and limits.
        """
        return await self._session.send(Call(
            operation="get_ai_detection_card", method="GET", path="/v1/score/cards/ai-detection", result=str, reader="text",
            accept="text/markdown",
        ))

    async def get_sycophancy_card(self) -> str:
        """
        Return the model card of sycophancy as Markdown: data, figures and limits.
        """
        return await self._session.send(Call(
            operation="get_sycophancy_card", method="GET", path="/v1/score/cards/sycophancy", result=str, reader="text",
            accept="text/markdown",
        ))
