"""Redaction of personal data and secrets, and normalization of texts and tags."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.personal_data.measures import EVERYTHING, measure
from benchmarks.personal_data.sample import SAMPLE, UNSEEN, read
from rookery.memory.maintenance.cleaning import load_finders
from rookery.memory.maintenance.cleaning.redaction import PiiKind, clean_tags, normalize_text, redact, redaction_mark

FINDERS = load_finders()
PIECES = [line.text for line in read(SAMPLE) if line.labels] + [redaction_mark(kind) for kind in PiiKind]
texts = st.text() | st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=5).map(" ".join)


def test_the_finders_reach_the_published_figures() -> None:
    """The figures of docs/how-to/keep-memory-tidy.md are measured on a labelled sample."""
    sample, unseen = measure(read(SAMPLE)), measure(read(UNSEEN)).figures[EVERYTHING]

    assert sample.mistakes == []
    assert (round(unseen.precision, 3), round(unseen.recall, 3)) == (0.96, 0.857)


@pytest.mark.parametrize("kind", list(PiiKind))
def test_each_kind_has_its_mark(kind: PiiKind) -> None:
    """Marks such as `[email]` replace e-mail addresses, phone numbers, cards, IBANs, IPs, national ids and secrets."""
    line = next(line for line in read(SAMPLE) if {label for label, _, _ in line.labels} == {kind.value})
    redacted = redact(line.text, FINDERS)
    (_, start, stop) = min(line.labels, key=lambda label: label[1])

    assert redacted.counts == {kind: len(line.labels)}
    assert redacted.text.startswith(f"{line.text[:start]}[{kind.value}]")
    assert line.text[start:stop] not in redacted.text


def test_an_email_address_in_a_link_is_redacted() -> None:
    """The address may be percent-encoded; an encoded at sign outside of an address stays."""
    text = "https://example.org/?to=kim.lee%40mail.example.org&by=50%40 off"

    assert redact(text, FINDERS).text == "https://example.org/?to=[email]&by=50%40 off"


@given(texts)
def test_redacting_twice_equals_redacting_once(text: str) -> None:
    """An interrupted run can be repeated without changing a memory twice."""
    redacted = redact(text, FINDERS).text

    assert redact(redacted, FINDERS).text == redacted


@given(texts)
def test_redaction_changes_only_what_it_finds(text: str) -> None:
    """All other text stays, character by character."""
    redacted, remaining_text = redact(text, FINDERS), text
    for kind, number in redacted.counts.items():
        assert redacted.text.count(redaction_mark(kind)) >= number
    unchanged_parts = [redacted.text]
    for kind in PiiKind:
        unchanged_parts = [part for unchanged_part in unchanged_parts for part in unchanged_part.split(redaction_mark(kind))]
    for part in unchanged_parts:
        position = remaining_text.find(part)
        assert position >= 0
        remaining_text = remaining_text[position + len(part) :]


@given(st.text(alphabet=st.characters() | st.sampled_from(" \t\r\n\u00a0\u200b\u0301`|#")))
def test_normalizing_a_text_twice_equals_normalizing_it_once(text: str) -> None:
    """With `--normalise`, letters are in NFC and line ends are LF, without repeated empty lines."""
    normalized = normalize_text(text)

    assert normalize_text(normalized) == normalized
    assert unicodedata.is_normalized("NFC", normalized)
    assert "\r" not in normalized
    assert "\n\n\n" not in normalized or "```" in normalized


@given(st.lists(st.text(max_size=12)))
def test_cleaning_tags_twice_equals_cleaning_them_once(tags: list[str]) -> None:
    """Tags are in lower case, without duplicates and empty tags."""
    cleaned = clean_tags(tags)

    assert clean_tags(cleaned) == cleaned
    assert len(set(cleaned)) == len(cleaned)
    assert "" not in cleaned


def test_a_value_that_another_one_overlaps_is_redacted() -> None:
    """Two IBANs stand side by side, with characters of an IBAN between them."""
    text = "NO9386011117947 0 NL20IN GB0001234567"

    assert redact(text, FINDERS).text == "[iban] 0 [iban]"


def test_significant_white_space_stays() -> None:
    """Indentation, tables and blocks of code stay."""
    text = "def f():\n    return  1\n\n| a  |  b |\n\n```\nx  =  1\n```\n    y  = 2"

    assert normalize_text(text) == text
    assert normalize_text("Two  words,\u00a0one\u200b line.  \r\n\r\n\r\n\r\nEnd. \n") == "Two words, one line.\n\nEnd."
    assert normalize_text("cafe\u0301") == "café"
    assert clean_tags(["#DB ", "db", "Two  Words", " "]) == ("db", "two words")


@pytest.mark.parametrize(
    "piece", ["a@a.", "1 ", "1-", "a:", "1.", "password: ", "-----BEGIN PRIVATE KEY-----", "://a:", "A1B2", "+1", "(at)", "eyJaaaaaaaa."]
)
def test_redaction_is_fast_on_repetitive_texts(piece: str) -> None:
    """A memory has up to 50,000 characters, and they may be any; the time limit of the test is the bound."""
    redact(piece * (50_000 // len(piece)), FINDERS)
