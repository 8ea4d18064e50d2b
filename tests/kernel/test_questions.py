"""The question in a long text. Pure functions."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel.questions import MAX_QUESTION_CHARS, extract_question, keep_ends

QUESTION = "How many tons does the harbour crane of pier 3 lift?"
LOG = "".join(
    f"2026-11-22T05:5{n % 10}:0{n % 7}Z info worker-{n % 4} request id={n * 7919} path=/static/app.{n}.js took={n}ms\n" for n in range(40)
)
TRACE = "Traceback (most recent call last):\n" + '  File "/app/crane.py", line 12, in lift\n    self.check(weight, limit=40)\n' * 20
CHINESE_ARTICLE = "这是一个很长的文章。" * 80
CHINESE_QUESTION = "港口起重机三号能吊多少吨\uff1f"
ARTICLE = "The festival is held in the old town. The music plays until midnight, and the food is good. " * 20
JSON = '{"id": 12, "name": "worker", "values": [1, 2, 3], "path": "/a/b"}\n' * 20


@pytest.mark.parametrize(
    "text",
    [
        QUESTION,
        f"{LOG}\n\n{QUESTION}",
        f"{LOG}{QUESTION}",
        f"{QUESTION}\n{LOG}",
        f"{LOG}\n{QUESTION}\n{LOG}",
        f"{LOG[:300]}\n{QUESTION}",
        f"{ARTICLE}\n\n{QUESTION}",
        f"{QUESTION}\n\n{ARTICLE}",
        f"{JSON}{QUESTION}",
        f"```\n{LOG}```\n{QUESTION}",
        f"{LOG}\nHow many tons does the harbour\ncrane of pier 3 lift?\n",
        LOG * 1_000 + QUESTION,
    ],
)
def test_a_question_is_found_before_behind_and_within_other_text(text: str) -> None:
    """The query of a question with a log, an article or data is the question alone."""
    assert extract_question(text) == QUESTION


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (f"I work on the harbour crane of pier 3.\n\n{LOG}\n\nHow many tons does it lift?", ("harbour crane", "How many tons")),
        (f"{QUESTION}\n{LOG}\nAny idea?", (QUESTION,)),
        (f"{LOG}\n{QUESTION}\nThanks a lot, Kim", (QUESTION,)),
        (f"{TRACE}\nTell me how many tons the harbour crane lifts.", ("tons the harbour crane lifts.",)),
        (f"{ARTICLE}{QUESTION}", (QUESTION,)),
        (f"{LOG.strip()} {QUESTION}", (QUESTION,)),
        (f"{CHINESE_ARTICLE}\n{CHINESE_QUESTION}", (CHINESE_QUESTION,)),
        (f"{ARTICLE}\nWe plan the harbour.\n{ARTICLE}", ("The festival is held", "the food is good.")),
    ],
)
def test_what_belongs_to_a_question_stays(text: str, parts: tuple[str, ...]) -> None:
    """A short paragraph at the other end, the words before it, and both ends of a text without a question."""
    question = extract_question(text)
    assert len(question) <= MAX_QUESTION_CHARS
    assert all(part in question for part in parts)


@given(text=st.text(alphabet=st.sampled_from("ab ?.\n1{。吨?"), max_size=2_000) | st.text(max_size=2_000))
def test_a_question_is_short_and_stays_what_it_is(text: str) -> None:
    """A short text of one line is unchanged, and what is extracted is never empty, too long, or shortened again."""
    question = extract_question(text)
    assert len(question) <= MAX_QUESTION_CHARS
    assert bool(question) == bool(text.strip())
    if len(text.strip()) <= MAX_QUESTION_CHARS and "\n" not in text.strip():
        assert question == text.strip()


@pytest.mark.parametrize("text", [LOG * 350, "a?" * 500_000, "? " * 500_000, "\n" * 1_000_000 + QUESTION, "吨。" * 500_000])
def test_a_text_of_any_length_takes_milliseconds(text: str) -> None:
    """Prompts of any length get their answer within the deadline."""
    started = time.process_time()
    extract_question(text)
    assert time.process_time() - started < 0.25


def test_both_ends_of_a_sequence_are_kept() -> None:
    """The end counts more than the beginning."""
    assert keep_ends(range(100), 8) == [0, 1, 94, 95, 96, 97, 98, 99]
    assert keep_ends("abc", 3) == ["a", "b", "c"]
    assert keep_ends([1, 2, 3], 1) == [3]
    assert keep_ends([1, 2, 3], 0) == []
