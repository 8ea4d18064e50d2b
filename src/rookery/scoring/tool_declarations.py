"""The tool of the MCP server `scoring`: its description, published arguments and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from rookery.kernel.http.operation_tools import ServerDeclaration
from rookery.kernel.http.operations import ToolDeclaration

SERVER = ServerDeclaration(
    id="scoring",
    name="Content scoring",
    tagline="AI detection and sycophancy of texts, offline.",
    description=(
        "Score a text: the calibrated probability that a model wrote it, and how sycophantic it is as an answer. Texts are not stored. "
        "A score is a signal and no proof; `uncertain` is a normal result."
    ),
)

SCORE = ToolDeclaration(
    name="score",
    description="Score a text: whether a model probably wrote it, and whether it flatters or gives in "
    "without a reason. Pass the prompt that it answers; for capitulation, the history too. English, best from 120 words.",
    effect="reads",
    arguments={
        "text": "",
        "prompt": "The message that it answers.",
        "history": "Before the prompt, oldest first.",
        "counterpart": "The answer to the opposite framing.",
        "explain": "",
    },
    required=("text",),
)


def render_text(tool: str, output: Mapping[str, object]) -> str:
    """Return the text of a result for a model: both labels with their numbers, and the spans."""
    del tool
    sycophancy = cast("Mapping[str, object]", output["sycophancy"])
    lines = [
        f"AI detection: {_describe(output)}",
        f"Sycophancy: {_describe(sycophancy)}" + ("; the prompt is missing" if sycophancy["needs_context"] else ""),
        *(
            f"- {span['kind']} at {span['start']}-{span['end']}: {span['reason']}"
            for span in cast("Sequence[Mapping[str, object]]", sycophancy["spans"])
        ),
    ]
    return "\n".join(lines)


def _describe(result: Mapping[str, object]) -> str:
    reason = f" ({result['reason']})" if result.get("reason") else ""
    if result["score"] is None:
        return f"no score{reason}"
    rate = cast("float", result["expected_false_positive_rate"])
    return f"{result['label']}{reason}, score {result['score']}, expected false positives {rate:.1%}"
