"""Comparison of statements in the languages that Rookery stems."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rookery.memory.statements import Difference, extract_new_sentences, find_distinction

TEMPLATES = {
    "ar": ("يعمل الخادم {name} على المنفذ {number}", "لا يعمل الخادم {name} على المنفذ {number}"),
    "da": ("tjenesten {name} lytter på port {number}", "tjenesten {name} lytter ikke på port {number}"),
    "de": ("der Dienst {name} läuft auf Port {number}", "der Dienst {name} läuft nicht auf Port {number}"),
    "el": ("η υπηρεσία {name} ακούει στη θύρα {number}", "η υπηρεσία {name} δεν ακούει στη θύρα {number}"),
    "en": ("the service {name} listens on port {number}", "the service {name} never listens on port {number}"),
    "es": ("el servicio {name} escucha en el puerto {number}", "el servicio {name} no escucha en el puerto {number}"),
    "fi": ("palvelu {name} kuuntelee porttia {number}", "palvelu {name} ei kuuntele porttia {number}"),
    "fr": ("le service {name} utilise le port {number}", "le service {name} n'utilise pas le port {number}"),
    "hi": ("सेवा {name} पोर्ट {number} पर चलती है", "सेवा {name} पोर्ट {number} पर नहीं चलती है"),
    "hu": ("a {name} szolgáltatás a {number} porton fut", "a {name} szolgáltatás nem fut a {number} porton"),
    "hy": ("{name} ծառայությունը աշխատում է {number} պորտով", "{name} ծառայությունը չի աշխատում {number} պորտով"),
    "id": ("layanan {name} memakai port {number}", "layanan {name} tidak memakai port {number}"),
    "it": ("il servizio {name} usa la porta {number}", "il servizio {name} non usa la porta {number}"),
    "nl": ("de dienst {name} luistert op poort {number}", "de dienst {name} luistert niet op poort {number}"),
    "no": ("tjenesten {name} lytter på port {number}", "tjenesten {name} lytter aldri på port {number}"),
    "pt": ("o serviço {name} usa a porta {number}", "o serviço {name} não usa a porta {number}"),
    "ro": ("serviciul {name} folosește portul {number}", "serviciul {name} nu folosește portul {number}"),
    "ru": ("служба {name} слушает порт {number}", "служба {name} не слушает порт {number}"),
    "sv": ("tjänsten {name} lyssnar på port {number}", "tjänsten {name} lyssnar inte på port {number}"),
    "ta": ("{name} சேவை {number} துறையில் இயங்கும்", "{name} சேவை {number} துறையில் இயங்குவது இல்லை"),
    "tr": ("{name} hizmeti {number} portunu dinler", "{name} hizmeti {number} portunu dinlemez"),
}
"""For each language with a stemmer a statement, and one that denies it."""

languages = st.sampled_from(sorted(TEMPLATES))
numbers = st.one_of(
    st.integers(min_value=0, max_value=99_999).map(str),
    st.dates().map(str),
    st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda parts: f"v{parts[0]}.{parts[1]}"),
    st.from_regex(r"[a-z]{1,3}[-_][0-9]{1,4}", fullmatch=True),
    st.sampled_from(["٤١٠٠", "１２", "½", "20%", "20°", "$20", "€20", "-5", "5", "aB", "Ab", ".env", "a/b", "kim@example.com"]),  # noqa: RUF001 - digits of other scripts
)
names = st.sampled_from("billing search Anna Ann kim Kim-Lee ledger AWS aws müller mueller Иван अनिल".split())
fillers = st.lists(st.sampled_from(["It was checked twice.", "Siehe Wiki.", "C'est sûr!", "Verified 2026-01-02."]), max_size=3, unique=True)


def state(language: str, name: str, number: str, *, denies: bool = False) -> str:
    """Return the statement of *language*, or its denial."""
    return TEMPLATES[language][denies].format(name=name, number=number) + "."


@given(languages, names, numbers, numbers, fillers)
def test_statements_that_differ_in_a_number_date_or_identifier_stay_apart(
    language: str, name: str, number: str, other: str, others: list[str]
) -> None:
    """Also among sentences that both texts have."""
    assume(number.casefold() != other.casefold() or number != other)
    texts = [" ".join([*others, state(language, name, each)]) for each in (number, other)]

    assert find_distinction(*texts) is not None
    assert find_distinction(*reversed(texts)) is not None


@given(languages, names, names, numbers)
def test_statements_that_differ_in_a_name_stay_apart(language: str, name: str, other: str, number: str) -> None:
    """Whatever letters names begin with."""
    assume(name.casefold() != other.casefold())

    assert find_distinction(state(language, name, number), state(language, other, number)) is not None


@given(languages, names, numbers, st.booleans())
def test_a_statement_stays_apart_from_its_denial(language: str, name: str, number: str, denies: bool) -> None:
    """In every language that is stemmed."""
    assert find_distinction(state(language, name, number, denies=denies), state(language, name, number, denies=not denies)) is not None


@given(st.builds(state, languages, names, numbers, denies=st.booleans()), fillers, fillers)
def test_a_text_with_all_statements_of_another_says_the_same(sentence: str, first: list[str], second: list[str]) -> None:
    """Added sentences are no difference, in any order; nor is case, white space or the mark at the end."""
    assert find_distinction(" ".join([*first, sentence]), "  ".join([sentence, *first, *second])) is None
    assert find_distinction("\n".join([sentence, *first]), " ".join([*first, sentence]).removesuffix(".")) is None


@pytest.mark.parametrize(
    ("content", "other", "difference"),
    [
        ("Customer 701 pays 23 euros.", "Customer 700 pays 20 euros.", Difference.VALUE),
        ("The key is aB3x.", "The key is ab3X.", Difference.VALUE),
        ("It moved from 5432 to 6543.", "It moved from 6543 to 5432.", Difference.VALUE),
        ("The audit is on Monday.", "The audit is on Tuesday.", Difference.VALUE),
        ("Deploys always run.", "Deploys never run.", Difference.NEGATION),
        ("We can deploy it.", "We can't deploy it.", Difference.NEGATION),
        ("Deploy billing, not search, for Ana.", "Not billing, deploy search, for Ana.", Difference.ORDER),
        ("Otto reports to Ruth.", "Ruth reports to Otto.", Difference.NAME),
        ("Kim owns the ledger.", "Ana owns the whole ledger.", Difference.NAME),
        ("Use tabs, not spaces.", "Use spaces, not tabs.", Difference.ORDER),
        ("The plan of the shop ends early.", "On this side the plan of the bank ends early.", Difference.WORD),
        ("可以部署", "不可以部署", Difference.NEGATION),
        ("端口是三千", "端口是三千五百", Difference.VALUE),
        ("ポート4100を使う", "ポート4107を使う", Difference.VALUE),
        ("배포를 한다", "배포를 안 한다", Difference.NEGATION),
        ("The link has 100 Mb a second.", "The link has 100 MB a second.", Difference.VALUE),
        ("The key is valid for 5 M.", "The key is valid for 5 m.", Difference.VALUE),
        ("Contact US sales first.", "Contact us sales first.", Difference.VALUE),
        ('The pipe is 5" wide.', "The pipe is 5' wide.", Difference.VALUE),
        ("Run tar -x on it.", "Run tar x on it.", Difference.VALUE),
        ("Run rm build/* first.", "Run rm build/ first.", Difference.VALUE),
        ("Deploy if !dirty is set.", "Deploy if dirty is set.", Difference.NEGATION),
        ("Users dont deploy.", "Users deploy.", Difference.NEGATION),
        ("Users donʼt deploy.", "Users do deploy.", Difference.NEGATION),  # noqa: RUF001 - an apostrophe of some keyboards
        ("We use Postgres?", "We use Postgres.", Difference.QUESTION),
        ("Herr Müller zahlt.", "Herr Muller zahlt.", Difference.NAME),
        ("El año es largo.", "El ano es largo.", Difference.WORD),
        ("दिन अच्छा है", "दान अच्छा है", Difference.WORD),
        ("He approves refunds.", "She approves the refunds.", Difference.WORD),
        ("All servers run Linux.", "Some of the servers run Linux.", Difference.WORD),
        ("Send it to Bob.", "Send it from the Bob.", Difference.WORD),
        ("The port was 5432.", "This is the port 5432.", Difference.WORD),
        ("Billing depends on search.", "Search depends on the billing.", Difference.ORDER),
        ("Move files from staging to production.", "Move the files from production to staging.", Difference.ORDER),
        ("Der Termin ist am 3. Mai. Die Feier ist am 4. Juni.", "Der Termin ist am 3. Juni. Die Feier ist am 4. Mai.", Difference.VALUE),
        ("Ask Mr. Lee. Pay Mrs. Kim.", "Ask Mr. Kim. Pay Mrs. Lee.", Difference.NAME),
        ("Is A up? Yes. Is B up? No.", "Is A up? No. Is B up? Yes.", Difference.NAME),
        ("# Staging\ndebug on\n# Production\ndebug off", "# Staging\ndebug off\n# Production\ndebug on", Difference.ORDER),
        ("# Staging\ndebug on\n# Production\ndebug on", "# Staging\ndebug on\n# Production\ndebug off", Difference.WORD),
        ("name: Ann\nport: 80\nname: Bob\nport: 81", "name: Ann\nport: 81\nname: Bob\nport: 80", Difference.ORDER),
    ],
)
def test_a_distinction_names_what_differs(content: str, other: str, difference: Difference) -> None:
    """The reason is for people."""
    distinction = find_distinction(content, other)

    assert distinction is not None
    assert distinction.difference is difference
    assert difference.value in str(distinction)


@pytest.mark.parametrize(
    ("content", "other"),
    [
        ("The office is closed on Mondays.", "The office is closed on Mondays. Bring a key."),
        ("We deploy on Friday.", "On Friday we do the deploy."),
        ("Port is 5432.", "The port is 5432."),
        ("IT  NESTS!", "it nests"),
        ("The heron nests here", "The heron nests here in the old oak"),
        ("`make check` runs all checks", "'make check' runs all checks."),
        ("", "The heron nests."),
        ("# Staging\ndebug on", "# Staging\ndebug on\n# Production\ndebug on"),
        ("It opens at 9 AM.", "It opens at 9 am."),
        ("Café Müller", "Cafe\u0301 Mu\u0308ller"),
        ("Ann, Bob own it", "Ann and Bob own it"),
    ],
)
def test_the_same_statement_in_another_form_is_no_distinction(content: str, other: str) -> None:
    """These are still merged."""
    assert find_distinction(content, other) is None
    assert find_distinction(other, content) is None


@pytest.mark.parametrize(
    ("content", "other", "new"),
    [
        ("It nests. It sings.", "It sings! It flies.", "It flies."),
        ("# Staging\ndebug on", "# Staging\ndebug on\n# Production\ndebug on", "# Production\ndebug on"),
        ("# Staging\ndebug on\n# Production\ndebug on", "# Staging\ndebug on", ""),
        ("Is it up? Yes.", "Is it new? Yes.", "Is it new? Yes."),
    ],
)
def test_a_merge_adds_each_sentence_with_those_that_it_depends_on(content: str, other: str, new: str) -> None:
    """A line below a heading, or an answer, says nothing alone."""
    assert extract_new_sentences(content, other) == new
