"""The section Scoring: scores of a text with its marked parts, and `uncertain` as an answer."""

from __future__ import annotations

import re

import pytest

from rookery.console.rendering import MAX_PAGE_BYTES
from rookery.console.views.scoring import TextPart, mark_spans, mark_windows
from rookery_client.generated import models
from tests.console.browsing import BrowserUser, ConsoleUser, get_text

pytestmark = pytest.mark.embedded_store  # test_links.py opens every page on each record store

FLATTERY = "Great question! You are absolutely right, and your plan is brilliant. However, I would be careful with the second step."


async def test_a_text_is_scored(user: ConsoleUser) -> None:
    """Scores with marked sentences, false positives, and a link to each model card. Short texts are honestly uncertain."""
    response = await user.post("scoring", {"text": FLATTERY, "prompt": "Is my plan good?"})
    page = get_text(response.text)
    assert response.status_code == 200
    for text in ("Uncertain", "honest answer", "fewer than 60 words", "score as high", "pushback"):
        assert text in page, text
    assert re.search(r'<mark class="(mild|marked|strong) praise" title="praise: [^"]+">your plan is brilliant', response.text)
    cards = re.findall(r'href="(\./\.\./v1/score/cards/[a-z-]+)"', response.text)
    assert len(cards) == 2
    assert FLATTERY in page, "the form keeps the text"
    for card in cards:
        assert (await user.http.get(f"http://localhost/console/{card}")).status_code == 200


async def test_the_conversation_counts(user: ConsoleUser) -> None:
    """Prompt and history are fields. Giving in without evidence is found with them alone."""
    fields = {"text": "You are right, I apologize. The answer is 398.", "prompt": "No, I am sure it is 398."}
    history = {"earlier_prompt": "What is 17 * 24?", "earlier_answer": "17 * 24 is 408."}
    with_history = get_text((await user.post("scoring", fields | history)).text)
    assert "Strong" in with_history
    assert "Capitulation" in with_history


async def test_refused_texts_keep_the_form(user: ConsoleUser) -> None:
    """A blank text is refused with a reason, and one of 100,001 characters too."""
    for text in ("  ", "x" * 100_001):
        response = await user.post("scoring", {"text": text})
        assert (response.status_code, "alert" in response.text, 'name="text"' in response.text) == (422, True, True)
    assert "generation" in await user.read("scoring?generation=nothing")


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script> " * 30, '"' * 100_000, ("He said: <b>'you're \"great\"'</b>. " * 3000)[:100_000]]
)
async def test_any_text_is_shown_as_text(user: ConsoleUser, text: str) -> None:
    """Nothing of a text is markup, and the page has a bound whatever is sent."""
    response = await user.post("scoring", dict.fromkeys(("text", "prompt", "earlier_prompt", "earlier_answer", "counterpart"), text))
    assert (response.status_code, "<script>alert" in response.text, "<b>" in response.text) == (200, False, False)
    assert len(response.content) < MAX_PAGE_BYTES


def test_marks_cover_the_text_once() -> None:
    """Overlapping windows count with their mean; overlapping spans do not repeat a character."""
    windows = [models.Segment(start=0, end=6, score=0.9), models.Segment(start=4, end=10, score=0.2)]
    parts = mark_windows("abcdefghij", windows)
    assert [(part.text, part.level) for part in parts] == [("abcd", "strong"), ("ef", "marked"), ("ghij", "")]
    spans = [
        models.SycophancySpan(start=2, end=5, kind="praise", strength=0.8, reason="one"),
        models.SycophancySpan(start=3, end=7, kind="pushback", strength=0.4, reason="two"),
    ]
    assert mark_spans("abcdefghij", spans) == [
        TextPart("ab"),
        TextPart("cde", "strong", "praise", "praise: one"),
        TextPart("fg", "mild", "pushback", "pushback: two"),
        TextPart("hij"),
    ]


async def test_a_person_scores_a_text(person: BrowserUser) -> None:
    """Score a text in a real browser."""
    await person.go("scoring")
    await person.type("#text", FLATTERY)
    await person.click("form.form button.primary")
    await person.wait_for("!!document.querySelector('.scored mark.praise')")
    assert await person.find_faults() == []
    await person.page.resize(360, 740)
    assert await person.find_faults() == []
