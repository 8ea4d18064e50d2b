from __future__ import annotations

import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel.tokenization import split_words, stem, to_index_text, to_search_terms
from rookery.memory.models import TextQuery
from rookery.memory.text_queries import FRAGMENT_CHARS, MAX_WORDS, highlight, match_keywords, parse_keywords, parse_query, parse_question


def test_a_question_is_parsed_without_stop_words() -> None:
    """Stop words and search syntax are ignored in questions."""
    assert parse_question('When do we "deploy" the -API?') == TextQuery(any_of=("deploy", "api"), is_question=True)


def test_a_question_of_stop_words_keeps_them() -> None:
    """A question with only stop words still has terms."""
    assert parse_question("who are you").any_of == ("who", "are", "you")


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("Was ist die IP von an-17?", ("was", "ist", "die", "ip", "von", "an", "17")),
        ("¿Por qué no hay copias?", ("por", "que", "no", "hay", "copias")),
        ("On a combien de serveurs, nous ?", ("on", "a", "combien", "de", "serveurs", "nous")),
        ("What was the IP of an-17?", ("ip", "17")),
        ("no backup on it", ("backup",)),
    ],
)
def test_only_english_questions_lose_english_stop_words(question: str, words: tuple[str, ...]) -> None:
    """The German 'was' and the Spanish 'no' are other words than the English ones."""
    assert parse_question(question).any_of == words


def test_a_search_in_another_language_keeps_english_stop_words() -> None:
    """The rule of questions applies to searches."""
    assert parse_query("was ist die IP").any_of == ("was", "ist", "die", "ip")
    assert parse_query("what was the IP").any_of == ("ip",)


def test_a_question_has_the_stems_of_its_language() -> None:
    """Function words have none, and an English question has none at all."""
    assert parse_question("Wo sind die Häuser auf 10.0.0.1?").stem_terms == {"hauser": ("haus0",)}
    assert parse_question("Where are the houses on the hill?").stem_terms == {}


def test_a_word_in_an_unknown_language_has_the_stems_of_all_languages() -> None:
    """A question of a few words may have no function word."""
    assert {"haus0", "hauser0"} <= set(parse_question("Häuser").stem_terms["hauser"])
    assert parse_question("लड़कियों backup").stem_terms["लडकय"] == ("लडक0",)


def test_a_search_query_has_phrases_and_exclusions() -> None:
    """A search supports quoted phrases and exclusion by a leading minus."""
    assert parse_query('deploy "never on Friday" -staging -"blue green" red,-green --force') == TextQuery(
        any_of=("deploy", "red", "force"), phrases=("never on friday",), none_of=("staging", "blue green", "green")
    )


def test_joined_parts_are_one_term() -> None:
    """The parts of a name are one term; commas separate words as spaces do."""
    assert parse_query("E_CONN_RESET main.py dry-run 1.2.3, cats,dogs").any_of == (
        "e conn reset",
        "main py",
        "dry run",
        "1 2 3",
        "cats",
        "dogs",
    )
    assert highlight("E_CONN_REFUSED, then E_CONN_RESET", parse_query("e_conn_reset")) == (
        "E_CONN_REFUSED, then <mark>E</mark>_<mark>CONN</mark>_<mark>RESET</mark>"
    )


@given(st.text(max_size=200))
def test_any_text_is_a_valid_query(text: str) -> None:
    """Query text is data, not query syntax."""
    words = parse_query(text)

    assert all(re.fullmatch(r"[^\W_]+( [^\W_]+)*", word) for word in words.any_of)
    assert len(words.any_of) <= MAX_WORDS
    assert parse_keywords([text]).phrases == ()


def test_forms_of_a_word_share_a_stem_without_case_and_accents() -> None:
    """Inflected forms share a stem; case and accents are ignored."""
    assert len({stem("Deploying"), stem("deploys"), stem("deployed")}) == 1
    assert stem("Café") == stem("cafe")


def test_a_keyword_matches_if_its_stems_are_adjacent() -> None:
    """The matched keywords are returned."""
    assert match_keywords(["rate limit", "deploy", "limit rates"], "Rate limits apply", "deployment", "deploys") == ("rate limit", "deploy")


@pytest.mark.parametrize(
    ("content", "query", "expected"),
    [
        ("我们每周二部署、数据库是PostgreSQL。", "数据库 postgresql", "我们每周二部署、<mark>数据库</mark>是<mark>PostgreSQL</mark>。"),
        ("猫喜欢吃鱼", "鱼", "猫喜欢吃<mark>鱼</mark>"),
        ("データのバックアップ", '"バックアップ"', "データの<mark>バックアップ</mark>"),
        ("화요일에 배포합니다", "화요일", "<mark>화요일</mark>에 배포합니다"),
        ("เราติดตั้งระบบ", "ระบบ", "เราติดตั้ง<mark>ระบบ</mark>"),
        ("हम मंगलवार को", "मंगलवार", "हम <mark>मंगलवार</mark> को"),
        ("كَتَبَ الوَلَدُ", "كتب", "<mark>كَتَبَ</mark> الوَلَدُ"),
        (
            "Straße, \uff26\uff55\uff4c\uff4c, résumé",
            "STRASSE full résumé",
            "<mark>Straße</mark>, <mark>\uff26\uff55\uff4c\uff4c</mark>, <mark>résumé</mark>",
        ),
    ],
)
def test_words_of_all_scripts_are_separated(content: str, query: str, expected: str) -> None:
    """Scripts without spaces, width variants and accents are supported."""
    assert highlight(content, parse_query(query)) == expected
    if '"' not in query:
        assert match_keywords(query.split(), content) == tuple(query.split())
    assert {word for term in parse_query(query).any_of for word in term.split()} <= set(_index_words(content))


def _index_words(content: str) -> list[str]:
    return re.findall(r"[^\W_]+", to_index_text(content))


@given(st.text(alphabet=st.sampled_from("aé 字部署バッグ́ระบ.한국"), max_size=60), st.data())
def test_every_word_of_a_text_finds_it(content: str, data: st.DataObject) -> None:
    """The search terms of a word are adjacent in the indexed text."""
    words = split_words(content)
    word = data.draw(st.sampled_from(words)) if words else ""

    assert f" {' '.join(to_search_terms(word))} " in f" {' '.join(_index_words(content))} "


def test_highlighting_marks_stems_and_escapes_the_rest() -> None:
    """Highlighting marks matching stems and escapes HTML."""
    index_query = parse_query('deploying "on tuesday"')

    assert highlight("We <b>deploy</b> on Tuesdays & Tuesday.", index_query) == (
        "We &lt;b&gt;<mark>deploy</mark>&lt;/b&gt; <mark>on</mark> <mark>Tuesdays</mark> &amp; Tuesday."
    )


@given(st.text(max_size=900), st.text(max_size=20))
def test_a_highlight_is_a_fragment_of_the_content(content: str, query: str) -> None:
    """The fragment is escaped and has no added text."""
    highlighted = highlight(content, parse_query(query))
    plain_text = unescape(re.sub("</?mark>", "", highlighted))

    assert plain_text.removeprefix("…").removesuffix("…") in content or plain_text in content
    assert len(plain_text) <= FRAGMENT_CHARS + 2
    assert not re.search("<(?!/?mark>)", highlighted)


def test_the_highlight_of_a_long_content_is_around_the_hit() -> None:
    """It begins and ends with an ellipsis."""
    content = "filler word " * 100 + "the heron nests here " + "filler word " * 100

    highlighted = highlight(content, parse_query("heron"))

    assert "<mark>heron</mark>" in highlighted
    assert highlighted.startswith("…")
    assert highlighted.endswith("…")
