from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel.languages import guess_languages, to_query_stem_terms, to_stem_terms
from rookery.kernel.tokenization import split_words

_PIECES = st.sampled_from(
    "der Häuser für maisons les où está las casas não são домах книги книгу الكتب كتاب किताबें में और σπίτια the houses 東京 v1.2 ß İ".split()
)
_TEXTS = st.one_of(st.text(max_size=120), st.lists(_PIECES, max_size=12).map(" ".join))


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Was ist die IP von an-17?", "de"),
        ("Die Sicherungen liegen auf dem zweiten Server.", "de"),
        ("Les sauvegardes sont sur le deuxième serveur.", "fr"),
        ("¿No hay copias de seguridad?", "es"),
        ("As cópias não ficam no mesmo servidor.", "pt"),
        ("I backup sono sul secondo server, non sul primo.", "it"),
        ("De kopieën van het archief staan niet op deze server.", "nl"),
        ("Säkerhetskopiorna ligger på den andra servern och inte på den första.", "sv"),
        ("Yedekler ikinci sunucuda, ama bu sunucu çok yavaş.", "tr"),
        ("A mentések a második szerveren vannak, nem az elsőn.", "hu"),
        ("Kopie są na drugim serwerze, ale nie na pierwszym.", "pl"),
        ("Fu\u0308r die Updates ist der Server mu\u0308de, aber nicht tot.", "de"),
    ],
)
def test_function_words_show_the_language(text: str, language: str) -> None:
    """Accents may be separate characters."""
    assert guess_languages(text) == ((language,), False)


@pytest.mark.parametrize(
    "text",
    [
        "What was the IP of an-17?",
        "Did the server die on a Friday, or was it no more than a war story?",
        "The user asked in German: was ist das? We answered that it is not the right word for it.",
    ],
)
def test_english_is_recognized_beside_words_of_other_languages(text: str) -> None:
    """Some words belong to several languages, and English texts quote others."""
    assert guess_languages(text) == (("en",), True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "deploy pipeline",
        "kubectl rollout restart",
        "10.0.0.17",
        "no backup",
        "https://a.example/o/a/de/x.jpg",
        "non-small cells in vitro",
    ],
)
def test_too_little_evidence_shows_no_language(text: str) -> None:
    """A few words that several languages share show nothing."""
    assert guess_languages(text).languages == ()


@pytest.mark.parametrize(
    ("text", "may_be_english"), [("deploy pipeline", True), ("no backup", True), ("Was kostet die IP?", False), ("Wo liegt es?", False)]
)
def test_a_text_without_more_words_of_another_language_may_be_english(text: str, may_be_english: bool) -> None:
    """Its English stop words are then dropped."""
    assert guess_languages(text).may_be_english == may_be_english


@pytest.mark.parametrize(
    ("text", "question", "word"),
    [
        ("Die Häuser sind auf dem Berg.", "Wo ist das Haus und wem gehört es?", "Haus"),
        ("Les clés sont dans le tiroir.", "Où est la clé de la cave ?", "clé"),
        ("Los servidores están en la bodega.", "¿Dónde está el servidor de pruebas?", "servidor"),
        ("As chaves não estão na sala azul.", "Onde está a chave da sala?", "chave"),
        ("Мы храним книги в подвале.", "Где моя книга?", "книга"),
        ("أخي مصاب بالسكري", "لماذا أتجنب السكر؟", "السكر"),
        ("लड़कियों का स्कूल", "लड़की कहाँ है?", "लड़की"),
    ],
)
def test_forms_of_a_word_share_a_stem_term(text: str, question: str, word: str) -> None:
    """This holds for a question in a known language, and for a word without a sentence."""
    for languages in (guess_languages(question).languages, ()):
        assert set(to_query_stem_terms(word, languages)) & set(to_stem_terms(text))


@pytest.mark.parametrize(
    "text", ["The houses are on the hill, and we have no keys for them.", "kubectl rollout", "猫喜欢吃鱼", "เราติดตั้งระบบ"]
)
def test_words_in_english_or_without_a_stemmer_have_no_stem_terms(text: str) -> None:
    """The index of an English text is as large as before."""
    assert to_stem_terms(text) == []


@given(_TEXTS)
def test_every_text_has_valid_terms_that_its_own_words_find(text: str) -> None:
    """A stem term is one word that English stemmers do not change."""
    terms, (languages, _) = to_stem_terms(text), guess_languages(text)

    assert terms == to_stem_terms(text)
    assert all(re.fullmatch(r"[^\W\d_]+0", term) for term in terms)
    if languages:
        assert {term for word in split_words(text) for term in to_query_stem_terms(word, languages)} == set(terms)
    else:
        every_term = {term for word in split_words(text) for term in to_query_stem_terms(word, ())}
        assert set(terms) <= every_term
