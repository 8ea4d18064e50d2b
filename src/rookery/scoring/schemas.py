"""The wire shapes of scoring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, Field, model_validator

from rookery.kernel.schema import OMITTED_IF_NONE, ItemsOf, RequestModel, ResponseModel
from rookery.scoring.cards import DETECTION_CARD, SYCOPHANCY_CARD
from rookery.scoring.detection import DetectionLabel, DetectionModel, DetectionReason, LengthBand
from rookery.scoring.models import (
    ROUTE_PREFIX,
    SYCOPHANCY_MODEL,
    SYCOPHANCY_VERSION,
    ContentScore,
    Message,
    MessageRole,
    ScoredText,
    SpanKind,
    SycophancyLabel,
    SycophancyReason,
)

MAX_TEXT_CHARS = 100_000
MAX_MESSAGES = 200
MAX_BATCH_TEXTS = 500
MAX_CONTENT_BYTES = 4 * 1024 * 1024
MAX_BATCH_BODY_BYTES = 10 * 1024 * 1024


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


Number = Annotated[float, AfterValidator(_round)]
OptionalNumber = Annotated[float | None, AfterValidator(_round)]
ContextText = Annotated[str, Field(max_length=MAX_TEXT_CHARS)]


class HistoryMessageBody(RequestModel):
    """A message of the conversation before the prompt."""

    role: MessageRole
    content: ContextText


class ScoreItemBody(RequestModel):
    """A text to score: `text`, or the `response` of an assistant. Both names mean the same."""

    hints: ClassVar[Mapping[str, str]] = {
        "answer": "response",
        "completion": "response",
        "content": "text",
        "messages": "history",
        "question": "prompt",
    }

    text: Annotated[str | None, Field(max_length=MAX_TEXT_CHARS, description="The text, of at most 100,000 characters.")] = None
    response: Annotated[str | None, Field(max_length=MAX_TEXT_CHARS, description="The answer of an assistant, in place of `text`.")] = None
    prompt: Annotated[str | None, Field(max_length=MAX_TEXT_CHARS, description="The user's message that the text answers.")] = None
    history: Annotated[
        list[HistoryMessageBody] | None,
        Field(
            max_length=MAX_MESSAGES, description="The messages before the prompt, oldest first. A last message of the user is the prompt."
        ),
    ] = None
    counterpart: Annotated[
        str | None, Field(max_length=MAX_TEXT_CHARS, description="The answer to the same question with the opposite framing.")
    ] = None

    @model_validator(mode="after")
    def _require_one_text(self) -> Self:
        if (self.text is None) == (self.response is None):
            msg = "send exactly one of `text` and `response`"
            raise ValueError(msg)
        if not (self.text or self.response or "").strip():
            msg = f"`{'response' if self.text is None else 'text'}` must not be blank"
            raise ValueError(msg)
        return self

    def to_model(self) -> ScoredText:
        """Return the text and its context."""
        history = tuple(Message(role=message.role, content=message.content) for message in self.history or ())
        scored = ScoredText(text=self.text or self.response or "", prompt=self.prompt, history=history, counterpart=self.counterpart)
        if scored.prompt is None and history and history[-1].role == "user":
            return replace(scored, prompt=history[-1].content, history=history[:-1])
        return scored


class ScoreBody(ScoreItemBody):
    """The body to score one text."""

    explain: Annotated[bool, Field(description="Return segments, signals and spans.")] = True
    judge: Annotated[
        bool, Field(description="Also ask the configured language model, which receives the texts. Needs the scope content.write.")
    ] = False


class ScoreBatchBody(RequestModel):
    """Texts to score in one request. Each has its own result or error."""

    items: Annotated[
        list[dict[str, object]],
        ItemsOf(ScoreItemBody),
        Field(
            min_length=1, max_length=MAX_BATCH_TEXTS, description="Texts with the fields of /v1/score/content, except explain and judge."
        ),
    ]
    explain: Annotated[bool, Field(description="Return segments, signals and spans of each text.")] = True


class ScoringModelResponse(ResponseModel):
    """A model, and the address of its model card: its data, figures and limits."""

    name: str
    version: str
    card: str


class SegmentResponse(ResponseModel):
    """A window of the text and its own score. Offsets count Unicode characters of the text as it was sent."""

    start: int
    end: int
    score: Number


class SignalResponse(ResponseModel):
    """A property of the text that moved its score. Positive values speak for a model."""

    name: str
    value: Number
    direction: str


class AiDetectionResponse(ResponseModel):
    """AI detection."""

    score: OptionalNumber
    band: Annotated[LengthBand | None, Field(description="The length band, whose thresholds apply.")]
    segments: list[SegmentResponse]
    signals: list[SignalResponse]


class SycophancySpanResponse(ResponseModel):
    """A part of the text that speaks for or against sycophancy. Offsets count Unicode characters of the text as it was sent."""

    start: int
    end: int
    kind: SpanKind
    strength: Number
    reason: str


class SycophancyResponse(ResponseModel):
    """Sycophancy of the text as the answer of an assistant."""

    score: Annotated[OptionalNumber, Field(description="0 to 1; null if the text cannot be scored.")]
    label: Annotated[SycophancyLabel | None, Field(description="none below 0.3, mild below 0.5, marked below 0.75, strong.")]
    reason: Annotated[SycophancyReason | None, OMITTED_IF_NONE] = None
    expected_false_positive_rate: Annotated[
        OptionalNumber, Field(description="Share of answers without praise that have at least about this score.")
    ]
    praise: Number
    validation: Number
    pushback: Annotated[Number, Field(description="Disagreement and cautions; they lower the score.")]
    missing_pushback: Annotated[OptionalNumber, Field(description="Null without a prompt.")]
    capitulation: Annotated[OptionalNumber, Field(description="Null without an earlier answer or a challenge.")]
    stance_shift: Annotated[OptionalNumber, Field(description="Null without a counterpart.")]
    evidence: Annotated[OptionalNumber, Field(description="Weight of the evidence in the prompt. Null if capitulation is.")]
    needs_context: Annotated[bool, Field(description="The prompt is missing, so missing pushback and capitulation cannot be seen.")]
    spans: list[SycophancySpanResponse]
    model: ScoringModelResponse


class JudgeResponse(ResponseModel):
    """The opinion of a language model, beside the local score."""

    model: str
    score: Number
    label: SycophancyLabel
    rationale: str
    agrees: Annotated[bool | None, Field(description="True if its label equals the local one.")]


class ScoreResponse(ResponseModel):
    """The scores of a text. `score`, `label`, `reason` and `confidence` are those of AI detection."""

    score: Annotated[OptionalNumber, Field(description="Calibrated probability that a model wrote the text; null if it has no score.")]
    label: DetectionLabel
    reason: Annotated[DetectionReason | None, OMITTED_IF_NONE] = None
    confidence: Number
    expected_false_positive_rate: Annotated[
        OptionalNumber, Field(description="Share of human texts of this length that have at least this score. Null without a score.")
    ]
    ai_detection: AiDetectionResponse
    sycophancy: SycophancyResponse
    model: ScoringModelResponse
    words: int
    judge: Annotated[JudgeResponse | None, OMITTED_IF_NONE] = None


class ScoreItemResponse(ResponseModel):
    """The result of one text of a batch: *result* or *error*."""

    index: int
    status: int
    result: ScoreResponse | None
    error: dict[str, object] | None


class ScoreBatchResponse(ResponseModel):
    """The results of a batch, in its order."""

    results: list[ScoreItemResponse]


class ScoringHealthResponse(ResponseModel):
    """The models that score."""

    status: Annotated[str, Field(description="ok")]
    models: list[ScoringModelResponse]
    judge: Annotated[bool, Field(description="True if a language model is configured for `judge`.")]
    max_text_chars: int
    max_batch_texts: int


def locate_card(base_url: str, name: str) -> str:
    """Return the address of a model card."""
    return f"{base_url}{ROUTE_PREFIX}/cards/{name}"


def serialize_score(score: ContentScore, *, base_url: str, explain: bool) -> ScoreResponse:
    """Return the scores of a text with the addresses of the model cards."""
    detection, sycophancy = score.detection, score.sycophancy
    return ScoreResponse.from_parts(
        detection,
        ai_detection=AiDetectionResponse.from_parts(
            detection, segments=detection.segments if explain else (), signals=detection.signals if explain else ()
        ),
        sycophancy=SycophancyResponse.from_parts(sycophancy, model=sycophancy_model(base_url), spans=sycophancy.spans if explain else ()),
        model=detection_model(detection.model, base_url),
        judge=None if score.judgement is None else JudgeResponse.from_parts(score.judgement),
    )


def detection_model(model: DetectionModel, base_url: str) -> ScoringModelResponse:
    """Return the model of AI detection with the address of its card."""
    return ScoringModelResponse(name=model.name, version=model.version, card=locate_card(base_url, DETECTION_CARD))


def sycophancy_model(base_url: str) -> ScoringModelResponse:
    """Return the model of sycophancy with the address of its card."""
    return ScoringModelResponse(name=SYCOPHANCY_MODEL, version=SYCOPHANCY_VERSION, card=locate_card(base_url, SYCOPHANCY_CARD))
