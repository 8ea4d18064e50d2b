"""Extraction of the prose of a text. All texts are written for these tests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.scoring.plain_text import count_words, extract_plain_text

PROSE = (
    "The ferry was late again, so we sat on the wall with our coats over our knees and counted the gulls. My brother said that the "
    "boat had a new engine and would still be slow. Nobody on the quay believed him, but when it came it was full of people who did."
)

GERMAN = (
    "Der Zug war wieder zu spät, also saßen wir mit den Mänteln auf den Knien auf der Mauer und zählten die Möwen. Mein Bruder sagte, "
    "dass das Boot einen neuen Motor hat und trotzdem langsam sein wird. "
)


@pytest.mark.parametrize(
    ("source", "prose"),
    [
        ("# A title\n\nSome **bold** and *thin* words", "A title\n\nSome bold and thin words"),
        ("- [x] one\n2. two\n+ three", "one\ntwo\nthree"),
        ("See [the page](https://example.org/a_b) or https://example.org/x_y now", "See the page or  now"),
        ("![a picture](p.png)Text", "Text"),
        ("un<b>break</b>able &amp; don&#39;t", "unbreakable & don't"),
        ("<p>One</p><p>Two</p>", "\nOne\n\nTwo\n"),
        ("before<!-- hidden -->after", "beforeafter"),
        ("snake_case_name stays, _so_ does 2 * 3", "snake_case_name stays, so does 2 * 3"),
        ("a < b and c > d", "a < b and c > d"),
        ("| a | b |\n|---|---|\n| c | d |", " a  b \n\n c  d "),
        ("Th\u0435 r\u0435p\u043ert, by \u041c\u0438\u0445\u0430\u0438\u043b", "The report, by \u041c\u0438\u0445\u0430\u0438\u043b"),
        ("in\u200bvi\u00adsi\u2060ble\ufeff \u202emarks\u202c", "invisible marks"),
    ],
)
def test_markup_is_removed(source: str, prose: str) -> None:
    """Markdown and HTML do not count as words or as style."""
    assert extract_plain_text(source).text == prose


def test_code_and_quotations_are_removed_and_counted() -> None:
    """Blocks of code and quotations are not the prose of the author."""
    source = f"{PROSE}\n```python\nprint('one two')\n```\n> quoted words of another person\n<pre>x y</pre><blockquote>q r s</blockquote>\n"
    plain = extract_plain_text(source)
    assert plain.words == count_words(PROSE)
    assert (plain.code_words, plain.quoted_words, plain.problem) == (5, 8, None)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("", "empty"),
        (" \n\t ", "empty"),
        ("\U0001f600 \u2026 !!", "empty"),
        ("\x00\x01PNG\x02" * 50, "binary"),
        ("```\n" + "x = 1\n" * 50 + "```", "code"),
        ("import os\n\n\ndef main(path):\n    for name in os.listdir(path):\n        print(name)\n    return 0\n", "code"),
        ('{"name": "x", "values": [1, 2, 3], "nested": {"a": true}}', "code"),
        ("width,depth,mass\n" + "12,40,7\n15,38,9\n" * 20, "code"),
        ("2026-01-01T00:00:00Z INFO 8080 ready\n" * 20, "code"),
        ("12 34 56 78 90 " * 20, "code"),
        ("\n".join(f"> {PROSE}" for _ in range(3)), "quoted"),
        (
            "Der Zug war wieder zu spät, also saßen wir auf der Mauer und zählten die Möwen, bis es dunkel wurde.",
            "language",
        ),
        ("在2021年有1250例、2022年有1310例、2023年有1420例。", "language"),
        ("今日は天気がいいので、私たちは公園を散歩しました。", "language"),
        ("Сегодня хорошая погода, и мы гуляли в парке до вечера.", "language"),
        (f"{GERMAN * 8}{PROSE * 4}", "language"),
        (f"{PROSE * 6} {GERMAN * 2}", None),
        (PROSE, None),
        ("Short, but fine.", None),
        ("17 * 24 is 408: 17 * 20 = 340, and 17 * 4 = 68.", None),
    ],
)
def test_problems_are_named(source: str, problem: str | None) -> None:
    """Text that is no English prose is recognized, with the reason."""
    assert extract_plain_text(source).problem == problem


def test_positions_point_into_the_source() -> None:
    """A span of the prose is shown in the text as it was given."""
    source = "# Head\n<b>One</b> **two** [three](http://x.y/z) &quot;four&quot;"
    plain = extract_plain_text(source)
    for word in ("Head", "One", "two", "three", "four"):
        start = plain.text.index(word)
        located = plain.locate(start, start + len(word))
        assert source[slice(*located)] == word


@given(st.text(alphabet=st.sampled_from("ab .\n<>/![]()*_`~#|&;\ue000\x00é’-=pre"), max_size=300))
def test_any_text_is_accepted(source: str) -> None:
    """Nothing raises, and the positions of characters ascend within the source."""
    plain = extract_plain_text(source)
    assert plain.words == count_words(plain.text)
    starts = [plain.locate(offset, offset + 1)[0] for offset in range(len(plain.text))]
    assert starts == sorted(set(starts))
    assert all(0 <= start < len(source) for start in starts)


@pytest.mark.parametrize(
    "piece", ["<pre>", "<!--", "</", "[", "![", "```\n", "&amp", "*", "_", "<a ", "> ", "| ", "- ", '"', "http://", "=> "]
)
def test_hostile_text_takes_linear_time(piece: str) -> None:
    """100,000 characters of one opening mark end within the time limit of the test, which quadratic patterns would exceed."""
    extract_plain_text(piece * (100_000 // len(piece)))
    extract_plain_text(piece * (100_000 // len(piece)) + "</x>-->")
