"""`rookery score`: scores of files, without a server."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from rookery.kernel.errors import RookeryError
from rookery.scoring.models import ROUTE_PREFIX, ContentScore, Message, ScoredText
from rookery.scoring.schemas import MAX_TEXT_CHARS, serialize_score
from rookery.scoring.scorer import ContentScorer
from rookery.terminal.context import get_settings, run
from rookery.terminal.options import JsonOption, open_existing_file, raise_usage_error
from rookery.terminal.output import is_terminal, print_json, print_list, print_notice

_COLUMNS = ("file", "label", "score", "sycophancy", "sycophancy_score", "reason", "false_positives", "words")
_MAX_BYTES = 4 * MAX_TEXT_CHARS
"""Maximum bytes of a text: UTF-8 has at most 4 for a character."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters that a terminal would obey. Each is replaced by one character, so that offsets stay valid."""

_MODEL_STYLE = "on dark_red"
_STYLES = {
    "praise": "bold yellow",
    "validation": "yellow",
    "pushback": "green",
    "capitulation": "bold magenta",
    "correction": "cyan",
    "stance_shift": "magenta",
}
_MODEL_SCORE = 0.5
_LEGEND = "red background: a model probably wrote it; yellow: praise, validation; magenta: capitulation; green: pushback; cyan: correction"


def score(
    context: typer.Context,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE...", help="Text files; - is standard input.", show_default=False)
    ] = None,
    *,
    prompt: Annotated[Path | None, typer.Option(help="A file with the user's message that the texts answer.", show_default=False)] = None,
    earlier: Annotated[Path | None, typer.Option(help="A file with the assistant's answer before the prompt.", show_default=False)] = None,
    as_json: JsonOption = False,
) -> None:
    """Score texts: whether a model wrote them, and how sycophantic they are as answers. Nothing is sent or stored."""
    paths = files or ([] if sys.stdin.isatty() else [Path("-")])
    if not paths:
        raise_usage_error("Name at least one file, or pipe a text in.")
    if [*paths, prompt, earlier].count(Path("-")) > 1:
        raise_usage_error("Standard input (-) can be read only once.")
    if earlier is not None and prompt is None:
        raise_usage_error("--earlier needs --prompt, the message that came after it.")
    history = () if earlier is None else (Message(role="assistant", content=_read(earlier)),)
    conversation = ScoredText(text="", prompt=None if prompt is None else _read(prompt), history=history)
    texts = [conversation.with_text(_read(path)) for path in paths]

    async def score_texts(scorer: ContentScorer) -> list[ContentScore]:
        return await scorer.score_many(texts)

    scores = run(context, score_texts, part="scoring", create=True)
    if as_json:
        base_url = get_settings(context).public_url_of(ROUTE_PREFIX)
        print_json(
            [
                {"file": str(path), **serialize_score(result, base_url=base_url, explain=True).model_dump(mode="json")}
                for path, result in zip(paths, scores, strict=True)
            ]
        )
        return
    print_list([_to_row(path, result) for path, result in zip(paths, scores, strict=True)], _COLUMNS)
    if is_terminal():
        _print_highlighted(paths, [text.text for text in texts], scores)


def _read(path: Path) -> str:
    """
    Return the text of a file. Bytes that are not UTF-8 are replaced, so that a binary file is scored as one.

    Raises:
        RookeryError: It cannot be read, or is too long.
    """
    with open_existing_file(path) as file:
        try:
            raw = file.read(_MAX_BYTES + 1)
        except OSError as error:
            raise_usage_error(f"Cannot read {path}: {error.strerror}")
    text = raw.decode("utf-8", "replace")
    if len(text) > MAX_TEXT_CHARS:
        raise RookeryError(f"{path} has more than {MAX_TEXT_CHARS:,} characters, the maximum of a text. Score its parts.")
    return text


def _to_row(path: Path, result: ContentScore) -> dict[str, object]:
    detection, sycophancy = result.detection, result.sycophancy
    return {
        "file": str(path),
        "label": detection.label,
        "score": None if detection.score is None else round(detection.score, 3),
        "reason": detection.reason,
        "false_positives": None if detection.expected_false_positive_rate is None else f"{detection.expected_false_positive_rate:.1%}",
        "words": detection.words,
        "sycophancy": sycophancy.label or sycophancy.reason,
        "sycophancy_score": None if sycophancy.score is None else round(sycophancy.score, 3),
    }


def _print_highlighted(paths: Sequence[Path], texts: Sequence[str], scores: Sequence[ContentScore]) -> None:
    console = Console()
    for path, text, result in zip(paths, texts, scores, strict=True):
        highlighted = Text(_CONTROL.sub("\ufffd", text))
        for segment in result.detection.segments:
            if segment.score >= _MODEL_SCORE:
                highlighted.stylize(_MODEL_STYLE, segment.start, segment.end)
        for span in result.sycophancy.spans:
            highlighted.stylize(_STYLES[span.kind], span.start, span.end)
        if highlighted.spans:
            console.print(Text(f"\n{path}", style="bold"))
            console.print(highlighted)
    print_notice(_LEGEND)
