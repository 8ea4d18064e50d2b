from __future__ import annotations

import re
from html import unescape

from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel.words import stem
from rookery.memory.models import Words
from rookery.memory.words import FRAGMENT, MAX_WORDS, asked, found, highlighted, of_keywords, parsed


def test_a_question_is_its_telling_words() -> None:
    """D-44: stop words say nothing of what a question is about."""
    assert asked('When do we "deploy" the -API?') == Words(any_of=("deploy", "api"), is_question=True)


def test_a_question_of_stop_words_keeps_them() -> None:
    """D-44: something must be asked."""
    assert asked("who are you").any_of == ("who", "are", "you")


def test_a_search_knows_phrases_and_a_leading_minus() -> None:
    """D-49."""
    assert parsed('deploy "never on Friday" -staging -"blue green" dry-run --force') == Words(
        any_of=("deploy", "dry", "run", "force"), phrases=("never on Friday",), none_of=("staging", "blue green")
    )


@given(st.text(max_size=200))
def test_any_text_is_a_query(text: str) -> None:
    """D-49: query text is data."""
    words = parsed(text)

    assert all(re.fullmatch(r"[^\W_]+", word) for word in words.any_of)
    assert len(words.any_of) <= MAX_WORDS
    assert of_keywords([text]).phrases == ()


def test_forms_of_a_word_share_a_stem_without_case_and_accents() -> None:
    """D-44: stemmed."""
    assert len({stem("Deploying"), stem("deploys"), stem("deployed")}) == 1
    assert stem("Café") == stem("cafe")


def test_a_keyword_is_found_by_its_stems_side_by_side() -> None:
    """D-44: share of keywords found."""
    assert found(["rate limit", "deploy", "limit rates"], "Rate limits apply", "deployment", "deploys") == ("rate limit", "deploy")


def test_highlighting_marks_stems_and_escapes_the_rest() -> None:
    """D-49."""
    words = parsed('deploying "on tuesday"')

    assert highlighted("We <b>deploy</b> on Tuesdays & Tuesday.", words) == (
        "We &lt;b&gt;<mark>deploy</mark>&lt;/b&gt; <mark>on</mark> <mark>Tuesdays</mark> &amp; Tuesday."
    )


@given(st.text(max_size=900), st.text(max_size=20))
def test_a_highlight_is_a_part_of_the_content(content: str, query: str) -> None:
    """D-49: the rest is escaped, nothing is invented."""
    shown = highlighted(content, parsed(query))
    plain = unescape(re.sub("</?mark>", "", shown))

    assert plain.removeprefix("…").removesuffix("…") in content or plain in content
    assert len(plain) <= FRAGMENT + 2
    assert not re.search("<(?!/?mark>)", shown)


def test_a_long_content_is_shown_around_what_was_found() -> None:
    """D-49."""
    content = "filler word " * 100 + "the heron nests here " + "filler word " * 100

    shown = highlighted(content, parsed("heron"))

    assert "<mark>heron</mark>" in shown
    assert shown.startswith("…")
    assert shown.endswith("…")
