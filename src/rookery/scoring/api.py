"""The operations of scoring, relative to `/v1/score`, and the tool of the MCP server `scoring`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from pydantic import ValidationError
from starlette.responses import Response

from rookery.access.models import Caller
from rookery.kernel.errors import RookeryError, ValidationFailed
from rookery.kernel.http import Operation
from rookery.kernel.http.operation_tools import OperationServer, drop_empty_fields
from rookery.kernel.schema import map_validation_error
from rookery.scoring import tool_declarations
from rookery.scoring.cards import DETECTION_CARD, SYCOPHANCY_CARD, read_card
from rookery.scoring.errors import JudgementInvalid, JudgeNotConfigured
from rookery.scoring.judging import SycophancyJudge
from rookery.scoring.models import ContentScore, ScoredText
from rookery.scoring.schemas import (
    MAX_BATCH_BODY_BYTES,
    MAX_BATCH_TEXTS,
    MAX_CONTENT_BYTES,
    MAX_TEXT_CHARS,
    ScoreBatchBody,
    ScoreBatchResponse,
    ScoreBody,
    ScoreItemBody,
    ScoreItemResponse,
    ScoreResponse,
    ScoringHealthResponse,
    detection_model,
    serialize_score,
    sycophancy_model,
)
from rookery.scoring.scorer import ContentScorer

READ_SCOPE = "score:read"
JUDGE_SCOPE = "content.write"
"""The scope that `judge` needs besides, because the language model may cost money."""

_operation = partial(Operation, tags=("Scoring",))


@dataclass(frozen=True, slots=True)
class ScoringApi:
    """The operations of scoring. Texts are neither stored nor logged, so no route takes an Idempotency-Key."""

    scorer: ContentScorer
    judge: SycophancyJudge
    base_url: str
    judge_errors: tuple[type[RookeryError], ...] = ()

    def server(self) -> OperationServer:
        """Return the built-in MCP server `scoring`."""
        return OperationServer(
            self.operations(),
            tool_declarations.SERVER,
            compact=drop_empty_fields,
            render_text=tool_declarations.render_text,
        )

    def operations(self) -> list[Operation]:
        """Return the operations."""
        card = partial(_operation, method="GET", public=True, required_scope=None, media_types=("text/markdown",))
        return [
            _operation(method="POST", path="/content", handler=self.post_content, required_scope=READ_SCOPE, response_model=ScoreResponse,
                       max_body_bytes=MAX_CONTENT_BYTES, operation_id="score_content", summary="Score a text",
                       errors=(JudgeNotConfigured, JudgementInvalid, *self.judge_errors), allowed_on_full_disk=True,
                       tools=(tool_declarations.SCORE,), repeatable=True),
            _operation(method="POST", path="/batch", handler=self.post_batch, required_scope=READ_SCOPE, response_model=ScoreBatchResponse,
                       max_body_bytes=MAX_BATCH_BODY_BYTES, operation_id="score_batch", summary="Score many texts",
                       allowed_on_full_disk=True, repeatable=True),
            _operation(method="GET", path="/health", handler=self.get_health, public=True, required_scope=None,
                       response_model=ScoringHealthResponse, operation_id="get_scoring_health", summary="Show the models that score"),
            card(path=f"/cards/{DETECTION_CARD}", handler=self.get_detection_card, operation_id="get_ai_detection_card",
                 summary="Show the model card of AI detection"),
            card(path=f"/cards/{SYCOPHANCY_CARD}", handler=self.get_sycophancy_card, operation_id="get_sycophancy_card",
                 summary="Show the model card of sycophancy"),
        ]  # fmt: skip

    async def post_content(self, caller: Caller, body: ScoreBody) -> ScoreResponse:
        """
        Return the probability that a model wrote a text, and its sycophancy as an answer.

        The text is not stored. A text that cannot be judged is `uncertain`, with the reason. With `judge`, the call at the language
        model is charged to the budgets of content.
        """
        text = body.to_model()
        if body.judge:
            caller.require_scope(JUDGE_SCOPE)
            if caller.environment == "test":
                raise ValidationFailed({"judge": ["is not available to test keys, because it may cost money; use a live key"]})
            self.judge.require_model()
        score = await self.scorer.score(text, workspace_id=caller.workspace_id, explain=body.explain)
        if body.judge:
            score = replace(score, judgement=await self.judge.judge(caller, text, score.sycophancy))
        return self._serialize(score, explain=body.explain)

    async def post_batch(self, caller: Caller, body: ScoreBatchBody) -> ScoreBatchResponse:
        """
        Score up to 500 texts.

        Each text is scored or rejected on its own. `results` has one result or error per text, in the order of the request.
        """
        parsed = [_parse_item(item) for item in body.items]
        texts = [item for item in parsed if isinstance(item, ScoredText)]
        scores = iter(await self.scorer.score_many(texts, workspace_id=caller.workspace_id, explain=body.explain))
        return ScoreBatchResponse.model_construct(
            results=[
                ScoreItemResponse.model_construct(index=index, status=item.status, result=None, error=item.body())
                if isinstance(item, ValidationFailed)
                else ScoreItemResponse.model_construct(
                    index=index, status=200, result=self._serialize(next(scores), explain=body.explain), error=None
                )
                for index, item in enumerate(parsed)
            ]
        )

    async def get_health(self) -> ScoringHealthResponse:
        """Return the models with their versions and the addresses of their model cards, and the limits."""
        model = await self.scorer.get_detection_model()
        return ScoringHealthResponse(
            status="ok",
            models=[detection_model(model, self.base_url), sycophancy_model(self.base_url)],
            judge=self.judge.is_configured,
            max_text_chars=MAX_TEXT_CHARS,
            max_batch_texts=MAX_BATCH_TEXTS,
        )

    async def get_detection_card(self) -> Response:
        """Return the model card of AI detection as Markdown: data, figures and limits."""
        return Response(read_card(DETECTION_CARD), media_type="text/markdown")

    async def get_sycophancy_card(self) -> Response:
        """Return the model card of sycophancy as Markdown: data, figures and limits."""
        return Response(read_card(SYCOPHANCY_CARD), media_type="text/markdown")

    def _serialize(self, score: ContentScore, *, explain: bool) -> ScoreResponse:
        return serialize_score(score, base_url=self.base_url, explain=explain)


def _parse_item(item: Mapping[str, object]) -> ScoredText | ValidationFailed:
    """Return the text of a batch item, or its validation errors in the form of a body's errors."""
    try:
        return ScoreItemBody.model_validate(item).to_model()
    except ValidationError as error:
        return map_validation_error(error, ScoreItemBody)
