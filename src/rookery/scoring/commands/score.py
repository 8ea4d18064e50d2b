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
from rookery.scoring.cards import CARDS
from rookery.scoring.detection import DetectionResult
from rookery.scoring.models import ROUTE_PREFIX, ContentScore, Message, ScoredText
from rookery.scoring.schemas import MAX_TEXT_CHARS, locate_card, serialize_score
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
_UNCERTAIN = "uncertain"
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
    """
    Score texts: whether a model wrote them, and how sycophantic they are as answers. Nothing is sent or stored.

    Files that cannot be read or are too long are reported, and all others are scored. The exit code is then 2 or 1.
    """
    paths = files or ([] if sys.stdin.isatty() else [Path("-")])
    if not paths:
        raise_usage_error("Name at least one file, or pipe a text in.")
    if [*paths, prompt, earlier].count(Path("-")) > 1:
        raise_usage_error("Standard input (-) can be read only once.")
    if earlier is not None and prompt is None:
        raise_usage_error("--earlier needs --prompt, the message that came after it.")
    history = () if earlier is None else (Message(role="assistant", content=_read(earlier)),)
    conversation = ScoredText(text="", prompt=None if prompt is None else _read(prompt), history=history)
    texts, failures = _read_all(paths)
    if len(paths) == 1 and failures and not as_json:
        raise failures[0]

    async def score_texts(scorer: ContentScorer) -> list[ContentScore]:
        return await scorer.score_many([conversation.with_text(text) for text in texts.values()])

    scores = dict(zip(texts, run(context, score_texts, part="scoring", create=True) if texts else (), strict=True))
    for failure in failures.values():
        print_notice(f"error: {failure.message}")
    base_url = get_settings(context).public_url_of(ROUTE_PREFIX)
    if as_json:
        results = {
            number: serialize_score(result, base_url=base_url, explain=True).model_dump(mode="json") for number, result in scores.items()
        }
        errors = {number: {"error": failure.message} for number, failure in failures.items()}
        print_json([{"file": str(path), **(errors.get(number) or results[number])} for number, path in enumerate(paths)])
    elif scores:
        _print_results([paths[number] for number in scores], list(texts.values()), list(scores.values()), base_url)
    if failures:
        raise typer.Exit(max(_exit_code(failure) for failure in failures.values()))


def _read_all(paths: Sequence[Path]) -> tuple[dict[int, str], dict[int, RookeryError | typer.BadParameter]]:
    """Return the texts of the files, and the errors of those that cannot be read or are too long, by the position of the file."""
    texts, failures = dict[int, str](), dict[int, RookeryError | typer.BadParameter]()
    for number, path in enumerate(paths):
        try:
            texts[number] = _read(path)
        except (RookeryError, typer.BadParameter) as error:
            failures[number] = error
    return texts, failures


def _exit_code(failure: RookeryError | typer.BadParameter) -> int:
    """Return the exit code of a command with such a file alone: 2 for one that cannot be read, 1 for one that is too long."""
    return failure.exit_code if isinstance(failure, typer.BadParameter) else 1


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


def _print_results(paths: Sequence[Path], texts: Sequence[str], scores: Sequence[ContentScore], base_url: str) -> None:
    """Print the table; on a terminal also the highlighted texts, and what the numbers mean."""
    print_list([_to_row(path, result) for path, result in zip(paths, scores, strict=True)], _COLUMNS)
    if is_terminal():
        if _print_highlighted(paths, texts, scores):
            print_notice(_LEGEND)
        _print_notes(scores, [locate_card(base_url, name) for name in CARDS])


def _to_row(path: Path, result: ContentScore) -> dict[str, object]:
    detection, sycophancy = result.detection, result.sycophancy
    return {
        "file": str(path),
        "label": detection.label,
        "score": None if detection.score is None else round(detection.score, 3),
        "reason": detection.reason or sycophancy.reason,
        "false_positives": _describe_false_positives(detection),
        "words": detection.words,
        "sycophancy": sycophancy.label or _UNCERTAIN,
        "sycophancy_score": None if sycophancy.score is None else round(sycophancy.score, 3),
    }


def _describe_false_positives(detection: DetectionResult) -> str | None:
    """Return the share of human texts with such a score; None for a verdict that cannot be a false positive."""
    rate = detection.expected_false_positive_rate
    return None if rate is None or detection.label == "human" else f"{rate:.1%}"


def _print_notes(scores: Sequence[ContentScore], cards: Sequence[str]) -> None:
    """Print what the numbers of a table mean, and what is missing for more of them."""
    if any(result.sycophancy.needs_context for result in scores):
        print_notice("Without --prompt, missing pushback and capitulation cannot be seen.")
    if any(result.detection.score is not None or result.sycophancy.score is not None for result in scores):
        print_notice(f"A score is a signal and no proof. A running server has the model cards: {' and '.join(cards)}.")


def _print_highlighted(paths: Sequence[Path], texts: Sequence[str], scores: Sequence[ContentScore]) -> bool:
    """Print the texts with spans, and return whether there are any."""
    console, has_spans = Console(), False
    for path, text, result in zip(paths, texts, scores, strict=True):
        highlighted = Text(_CONTROL.sub("\ufffd", text))
        for segment in result.detection.segments:
            if segment.score >= _MODEL_SCORE:
                highlighted.stylize(_MODEL_STYLE, segment.start, segment.end)
        for span in result.sycophancy.spans:
            highlighted.stylize(_STYLES[span.kind], span.start, span.end)
        if highlighted.spans:
            has_spans = True
            console.print(Text(f"\n{path}", style="bold"))
            console.print(highlighted)
    return has_spans
