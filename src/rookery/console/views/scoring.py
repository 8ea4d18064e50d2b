"""Scoring: a text, the probability that a model wrote it, its sycophancy as an answer, and the parts that speak for either."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import pairwise

from starlette.responses import Response

from rookery.console.visit import SubmittedForm, View, Visit
from rookery_client import ApiError
from rookery_client.calls import UNSET
from rookery_client.generated import inputs, models

MAX_SHOWN_CHARS = 20_000
"""The longest text that a page shows again, so that each page has a bound. Longer texts are scored and not shown."""

_MAX_CONTEXT_CHARS = 8_000
_LEVELS = ((0.75, "strong"), (0.5, "marked"), (0.3, "mild"))
_FIELDS = ("text", "prompt", "earlier_prompt", "earlier_answer", "counterpart")


@dataclass(frozen=True, slots=True)
class TextPart:
    """
    A part of a text.

    Attributes:
        level: strong, marked, mild, or empty: it is not marked.
        kind: ai, or the kind of its sycophancy span. It decides the colour.
        note: The text alternative of the mark.
    """

    text: str
    level: str = ""
    kind: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Span:
    """A marked range of characters. The strongest of several wins."""

    start: int
    end: int
    strength: float
    kind: str
    note: str


async def show_form(visit: Visit) -> Response:
    """Show the form, filled with the output of a generation if the URL names one."""
    generation_id = visit.query("generation")
    fields = dict[str, str]()
    problem = ""
    if generation_id and visit.can("content.read"):
        try:
            generation = await visit.client.content.get_generation(generation_id)
        except ApiError as error:
            problem = error.message
        else:
            fields = _read_generation(generation)
            problem = "" if fields.get("text") else "This generation has no text."
    return _render(visit, fields, problem=problem, generation_id=generation_id)


async def score_text(visit: Visit) -> Response:
    """Score the text of the form. It is not stored, so the result is the response."""
    form = await visit.form()
    fields = {name: form.get_text(name) for name in _FIELDS}
    try:
        score = await visit.client.scoring.score_content(
            text=fields["text"],
            prompt=fields["prompt"] if fields["prompt"].strip() else UNSET,
            history=_read_history(form) or UNSET,
            counterpart=fields["counterpart"] if fields["counterpart"].strip() else UNSET,
        )
    except ApiError as error:
        if error.status != HTTPStatus.UNPROCESSABLE_ENTITY:
            raise
        return _render(visit, fields, problem=error.message, status=HTTPStatus.UNPROCESSABLE_ENTITY)
    return _render(visit, fields, score=score)


def mark_windows(text: str, segments: Sequence[models.Segment]) -> list[TextPart]:
    """Return the parts of *text* by the scores of its windows. Where windows overlap, their mean counts."""
    edges = sorted({0, len(text), *(segment.start for segment in segments), *(min(segment.end, len(text)) for segment in segments)})
    spans = list[_Span]()
    for start, end in pairwise(edges):
        scores = [segment.score for segment in segments if segment.start <= start and segment.end >= end]
        if scores:
            mean = sum(scores) / len(scores)
            spans.append(_Span(start, end, mean, "ai", f"score of this part: {mean:.2f}"))
    return _cut(text, spans)


def mark_spans(text: str, spans: Iterable[models.SycophancySpan]) -> list[TextPart]:
    """Return the parts of *text* by the spans that speak for or against sycophancy."""
    return _cut(
        text,
        [_Span(span.start, span.end, max(span.strength, _LEVELS[-1][0]), str(span.kind), f"{span.kind}: {span.reason}") for span in spans],
    )


def _cut(text: str, spans: Sequence[_Span]) -> list[TextPart]:
    beginning = text[:MAX_SHOWN_CHARS]
    parts, position = list[TextPart](), 0
    for span in sorted(spans, key=lambda item: (item.start, -item.strength)):
        start, end = max(span.start, position), min(span.end, len(beginning))
        level = next((name for least, name in _LEVELS if span.strength >= least), "")
        if start >= end or not level:
            continue
        if start > position:
            parts.append(TextPart(beginning[position:start]))
        parts.append(TextPart(beginning[start:end], level, span.kind, span.note))
        position = end
    if position < len(beginning):
        parts.append(TextPart(beginning[position:]))
    return parts


def _read_history(form: SubmittedForm) -> list[inputs.HistoryMessageBody]:
    history = list[inputs.HistoryMessageBody]()
    if form.get("earlier_prompt"):
        history.append({"role": "user", "content": form.get_text("earlier_prompt")})
    if form.get("earlier_answer"):
        history.append({"role": "assistant", "content": form.get_text("earlier_answer")})
    return history


def _read_generation(generation: models.Generation) -> dict[str, str]:
    prompts = [message.content for message in generation.messages if message.role == "user"]
    output = generation.output
    return {"text": (output.text or "") if output is not None else "", "prompt": prompts[-1] if prompts else ""}


def _render(
    visit: Visit,
    fields: Mapping[str, str],
    *,
    score: models.Score | None = None,
    problem: str = "",
    generation_id: str = "",
    status: int = 200,
) -> Response:
    text = fields.get("text", "")
    bounds = {"text": MAX_SHOWN_CHARS, **dict.fromkeys(_FIELDS[1:], _MAX_CONTEXT_CHARS)}
    return visit.render(
        "scoring/scoring.html",
        status=status,
        fields={name: value if len(value) <= bounds[name] else "" for name, value in fields.items()},
        score=score,
        problem=problem,
        generation_id=generation_id,
        is_cut=len(text) > MAX_SHOWN_CHARS,
        shown_chars=MAX_SHOWN_CHARS,
        windows=[] if score is None else mark_windows(text, score.ai_detection.segments),
        spans=[] if score is None else mark_spans(text, score.sycophancy.spans),
    )


VIEWS = (
    View("GET", "/scoring", show_form, "score:read"),
    View("POST", "/scoring", score_text, "score:read"),
)
