"""
Stems of words in other languages than English, and the language of a text, as far as its function words show it. Pure.

The script of a word shows its language, except for the Latin script. No library is used: py3langid takes 0.4 s of CPU and 100 MB to load
(measured), and has an answer for texts without any evidence.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import NamedTuple, Protocol, cast

import Stemmer

from rookery.kernel.tokenization import STOP_WORDS, fold_text, split_words

ENGLISH = "en"

STEM_MARK = "0"
"""Last letter of each stem term. English stemmers do not change words that end in a digit, and no word of letters equals such a term."""

_LETTERS = re.compile(r"[^\W\d_]+")
_SAMPLE_CHARS = 2_000
_MIN_FUNCTION_WORDS = 2
"""Distinct function words that show a language; of other languages than English, the number beyond those of English."""

_MIN_FUNCTION_WORD_SHARE = 0.08
_MIN_WORD_LENGTH = 3

_STEMMERS = {
    "ar": "arabic",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "es": "spanish",
    "fi": "finnish",
    "fr": "french",
    "hi": "hindi",
    "hu": "hungarian",
    "hy": "armenian",
    "id": "indonesian",
    "it": "italian",
    "nl": "dutch",
    "no": "norwegian",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
}
"""The Snowball algorithm of each language. Czech and Polish have none, but are recognized, so that they are not taken for others."""

_FUNCTION_WORDS = {
    "cs": """
        aby ale ani až bez být byl byla co dnes do ho jak jako je jeho jejich jen jsem jsme jsou již kam kde kdo když který která
        které má mám máme mezi my na nad naše ne není než nic od on ona oni po pod podle pro proč při se si tak také tam ten tento
        to už ve však za ze že
    """,
    "da": """
        af alle at blev bliver da de den der deres det dette dig din du efter eller en er et for fordi fra få han hans har have
        havde hendes her hun hvad hvem hvilke hvilken hvilket hvis hvor hvordan hvorfor hvornår ikke ind jeg jer kan kunne man med
        meget men mig min mit mod mange nu når og også om op os over på sig sin skal skulle som så til ud under var vi vil ville
        være vores
    """,
    "de": """
        aber alle als also am an auch auf aus bei beim bin bis bist da damit dann das dass dein deine dem den denn der des dessen
        dich die dir doch dort du durch ein eine einem einen einer eines er es euch euer für gegen gibt habe haben hat hatte hatten
        ich ihm ihn ihnen ihr ihre ihrem ihren im immer in ins ist ja jede jeden jeder jedes jetzt kann kein keine keinen können
        könnte läuft lautet liegt machen man mehr mein meine meinem meinen meiner mich mir mit muss müssen nach nicht nichts nie
        noch nur ob oder ohne schon sehr sein seine seit sich sie sind soll sollen sollte sondern über um und uns unser unsere
        unserem unseren unter viel vom von vor wann war waren warum was weil welche welchem welchen welcher welches wem wen wenn wer
        werden wie wieder wir wird wo wohin worauf wurde wurden zu zum zur zwischen
    """,
    "es": """
        al algo antes aquí así aún cada como con cómo cuál cuáles cuando cuándo cuánto cuántos de del desde donde dónde durante el
        él ella ellas ellos en entonces entre era es esa ese eso esta está están este esto estos fue fueron ha hace hacer han hasta
        hay la las le les lo los más me mi mis mucho muy nada ni no nos nosotros nuestra nuestro nunca para pero por porque puede
        pueden que qué quien quién quiénes se sea ser si sí sin sobre son su sus también te tengo tenemos tiene tienen todo todos tu
        un una uno unos usa usamos vamos ya yo
    """,
    "fi": """
        ei eikä emme en ennen ettei että hän he hänen ja jo jos joka jonka jotka kaikki kanssa kuin kuinka kuka kun luona me mikä
        miksi milloin minä minun missä mistä mitä mukaan mutta myös ne nyt ole olen olemme oli olla on ovat se sekä sen siellä siitä
        sinä sitä tai tämä tämän te tässä vai vain vaan voi
    """,
    "fr": """
        ai alors après au aucun aussi autre aux avant avec avez avoir avons bien car ce cela ces cet cette chez comme comment dans
        de depuis des doit donc dont du elle elles en encore entre est et était être eu faire fait faut il ils je jamais jour la là
        le les leur leurs lui ma mais me mes moi mon ne ni nos notre nous on ont ou où par parce pas pendant peu peut plus pour
        pourquoi qu quand que quel quelle quelles quels qui quoi sa sans se sera ses si son sont sous sur ta te tes toi ton toujours
        tous tout toute toutes très tu un une utilise utilisons va vers vos votre vous
    """,
    "hu": """
        az azt be csak de egy ehhez el és ez ezt fel ha hogy hogyan hol honnan hova igen is itt kell ki kinek le lehet lesz már meg
        melyik mert mi miért mikor milyen mint mit most nagyon nem nincs olyan ott pedig sem szerint ti után vagy vagyok van vannak
        volt volna
    """,
    "id": """
        ada adalah agar akan aku anda antara apa apakah atau bagaimana bahwa banyak belum berapa bisa dalam dan dapat dari dengan di
        dia hanya harus ini itu jika juga kami kapan karena ke kita lagi lebih mana mengapa mereka oleh pada para saat saja sangat
        saya sebagai sebuah sedang semua seperti siapa sudah telah tentang tetapi tidak untuk yang
    """,
    "it": """
        abbiamo agli ai al alla alle allo anche ancora avere che chi ci come con cosa cui da dagli dal dalla dalle dei del della
        delle dello di dopo dov dove ed era essere fa fare gli ha hai hanno ho il in io la le lei li lo loro lui ma mai me mi mia
        mio molto ne nei nel nella nelle nessuno noi non nostra nostro ogni per perché più poi prima qual quale quali quando quanti
        quanto quella quello questa questo qui sarà se sei senza si sia siamo sono sta su sua sugli sui sul sulla suo ti tra tu
        tutti tutto un una uno usa usiamo va vi viene
    """,
    "nl": """
        aan al alle als altijd bij daar dan dat de deze die dit door dus een en er ga geen haar had heb hebben heeft het hij hoe hun
        ik in is ja je jij jullie kan kunnen maar me meer men met mij mijn moet moeten na naar niet niets nog nooit nu of om omdat
        onder ons onze ook op over te toch toen tot uit van veel voor waar waarom wanneer waren was wat we wel welk welke werd wie
        wij wil worden wordt zal ze zich zij zijn zo zonder
    """,
    "no": """
        alle at av ble blir da de den denne der det dette du eller en er et etter for fordi fra få han hans har hadde henne her hun
        hva hvem hvilke hvilken hvilket hvis hvor hvordan hvorfor ikke inn jeg kan kunne man med meg men mer min mitt mot mye mange
        nå når og også om opp oss over på seg sin skal skulle som så til under ut var vi vil ville være vår våre
    """,
    "pl": """
        ale ani bardzo bez bo być był była były będzie co czy dla do gdy gdzie go ich ile ja jak jako jakie jaki jaka je jego jej
        jest jestem jeśli już każdy kiedy kto który która które lub ma mam mamy może na nad nam nas nasz nasze nie niż od on ona oni
        oraz po pod przed przez przy się są sobie ta tak także tam te tego ten to tu tylko tym we więc za ze że
    """,
    "pt": """
        ainda ao aos antes as às até cada com como da das de dela dele depois do dos ela elas ele eles em entre era essa esse esta
        está estão este estou eu fazer fica foi foram há isso isto já lhe mais mas me mesmo meu meus minha muito na nas não nem no
        nos nossa nosso nós nunca onde os ou para pela pelas pelo pelos per pode podem pois por porque qual quais quando quanto
        quantos que quem se sem ser seu seus sobre sua suas são só também te tem temos tenho têm todos tudo um uma umas usa usamos
        você vocês
    """,
    "ro": """
        acest această aceste ai al ale am ar are as atunci au avem ca care că ce cel cine cu cum când cât câte da dacă dar de decât
        deci din dintre după ea ei el ele era este eu fi fie fost iar în îl îi își la le lor lui mai mea meu mi mult noastră nostru
        noi nu oare pe pentru peste prin sa să sau se si și sunt spre sub te toate toți tot tu un unde unei unor unui va vă vor vom
    """,
    "sv": """
        alla allt att av bara blev blir då de dem den denna deras det detta dig din du där efter eller en er ett finns från för få
        ha hade han hans har hennes hon hur här icke in inte jag kan ligger man med mellan men mer mig min mitt mot mycket många nu
        när någon något och också om oss på sedan sig sin ska skall skulle som så till under upp ut utan vad var varför vara vart
        vem vi vid vilka vilken vilket vill vår våra än är över
    """,
    "tr": """
        ama ancak artık az bana bazı belki ben beni benim bile bir biri biz bize bizim bu bunu bunun çok çünkü da daha de değil diye
        en gibi göre hangi her hiç için ile ise kadar ki kim kimin mi mı mu mü nasıl ne neden nerede nereye niçin niye olan olarak
        oldu olduğu onlar onu onun önce sadece şey siz sonra şu tüm var ve veya ya yok
    """,  # noqa: RUF001 - Turkish has this letter
}

_ENGLISH_WORDS = STOP_WORDS | set(
    """
    about above after again all always been before below ca during each every few first from get got has into
    last like many mine more most much need never no off once one only other out over own same since so still than then think
    through under until up use used uses using very want way well without won yes yet
    """.split()
)

_HINT_LETTERS = {
    "¿¡ñ": ("es",),
    "ãõ": ("pt",),
    "œ": ("fr",),
    "øæ": ("da", "no"),
    "ğış": ("tr",),
    "őű": ("hu",),
    "șțăţ": ("ro",),
    "łąęśźż": ("pl",),
    "ěřů": ("cs",),
}
"""Letters that count as a function word of some languages that use the Latin script."""

_SCRIPTS = (
    ("el", re.compile("[\u0370-\u03ff\u1f00-\u1fff]+")),
    ("ru", re.compile("[\u0400-\u052f]+")),
    ("hy", re.compile("[\u0530-\u058f]+")),
    ("ar", re.compile("[\u0600-\u06ff\u0750-\u077f]+")),
    ("hi", re.compile("[\u0900-\u097f]+")),
    ("ta", re.compile("[\u0b80-\u0bff]+")),
)
"""
The language of the words of a script, and its letters.

Ukrainian is stemmed as Russian, Persian as Arabic and Marathi as Hindi. That costs little, because a stem is only searched beside its word.
"""

_LATIN_LETTER = re.compile("[a-z\u00df-\u024f\u1e00-\u1eff]")
_LATIN_LANGUAGES = tuple(sorted(_STEMMERS.keys() & _FUNCTION_WORDS.keys()))


def _index_languages(words_by_language: Iterable[tuple[str, Iterable[str]]]) -> dict[str, tuple[str, ...]]:
    languages_by_word = dict[str, tuple[str, ...]]()
    for language, words in words_by_language:
        for word in dict.fromkeys(words):
            languages_by_word[word] = (*languages_by_word.get(word, ()), language)
    return languages_by_word


_LANGUAGES_BY_WORD = _index_languages(
    # Single letters are also parts of addresses and names.
    (language, (word for word in words if len(word) > 1))
    for language, words in (
        (ENGLISH, sorted(_ENGLISH_WORDS)),
        *((language, words.split()) for language, words in _FUNCTION_WORDS.items()),
    )
)
_LANGUAGES_BY_LETTER = _index_languages((language, letters) for letters, languages in _HINT_LETTERS.items() for language in languages)


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802 - the library's name


class LanguageGuess(NamedTuple):
    """
    Evidence of the language of a text: the function words among its words in the Latin script.

    Attributes:
        languages: Codes of the likely languages; empty if there is too little evidence. There are several if the text has equally many
            function words of related languages.
        may_be_english: Whether the text has at least as many function words of English as of any other language; true if it has none.
    """

    languages: tuple[str, ...]
    may_be_english: bool


def guess_languages(text: str) -> LanguageGuess:
    """Return the likely languages of *text*."""
    counts, word_count = _count_function_words(text)
    most = max(counts.values(), default=0)
    may_be_english = counts[ENGLISH] >= most
    lead = most if may_be_english else most - counts[ENGLISH]
    if lead < _MIN_FUNCTION_WORDS or most < _MIN_FUNCTION_WORD_SHARE * word_count:
        return LanguageGuess((), may_be_english)
    likely = (ENGLISH,) if may_be_english else tuple(sorted(language for language, count in counts.items() if count == most))
    return LanguageGuess(likely, may_be_english)


def is_function_word(word: str) -> bool:
    """Return whether *word*, without case, is a function word of any language that is recognized by them."""
    return word in _LANGUAGES_BY_WORD


def to_stem_terms(text: str) -> list[str]:
    """Return the stem terms of the words of *text*, each once, for a text index. Words in English or in an unknown language have none."""
    languages, _ = guess_languages(text)
    if text.isascii() and languages in {(), (ENGLISH,)}:
        return []
    words = dict.fromkeys(map(_to_lowercase, split_words(text)))
    return list(dict.fromkeys(term for word in words for term in _stem_lowercase(word, languages)))


def to_query_stem_terms(word: str, languages: tuple[str, ...]) -> tuple[str, ...]:
    """
    Return the stem terms to search for a word of a question, from `split_words`.

    Args:
        languages: The languages of the question from `guess_languages`. If they are unknown, the terms of all languages are returned.
    """
    return _stem_lowercase(_to_lowercase(word), languages or _LATIN_LANGUAGES)


@lru_cache(maxsize=32_768)
def _stem_lowercase(word: str, languages: tuple[str, ...]) -> tuple[str, ...]:
    """Return the stem terms of *word*: in the language of its script, or in those of *languages* that have a stemmer."""
    if len(word) < _MIN_WORD_LENGTH or not _LETTERS.fullmatch(fold_text(word)):
        return ()
    by_script = tuple(language for language, letters in _SCRIPTS if letters.fullmatch(word))
    if not by_script and not _LATIN_LETTER.match(word):
        return ()
    as_function_word = _LANGUAGES_BY_WORD.get(word, ())
    stems = [_stem(word, language) for language in by_script or languages if language in _STEMMERS and language not in as_function_word]
    return tuple(dict.fromkeys(f"{stem}{STEM_MARK}" for stem in stems if _LETTERS.fullmatch(stem)))


def _stem(word: str, language: str) -> str:
    # The stemmer gets the word with its accents, which some algorithms need. Marks are the vowels of Devanagari and Tamil.
    return fold_text(_stemmer(language).stemWord(word))


def _count_function_words(text: str) -> tuple[Counter[str], int]:
    """Return the number of distinct function words and letters of each language in *text*, and the number of all distinct words."""
    sample = _to_lowercase(text[:_SAMPLE_CHARS])
    words = set(split_words(sample))
    counts = Counter(language for word in words & _LANGUAGES_BY_WORD.keys() for language in _LANGUAGES_BY_WORD[word])
    if not sample.isascii():
        counts.update(language for letter in set(sample) & _LANGUAGES_BY_LETTER.keys() for language in _LANGUAGES_BY_LETTER[letter])
    return counts, len(words)


def _to_lowercase(text: str) -> str:
    """Return *text* without case, with letters and their accents as one character."""
    low = text.casefold()
    return low if low.isascii() else unicodedata.normalize("NFC", low)


@cache
def _stemmer(language: str) -> _Stemmer:
    return cast("_Stemmer", Stemmer.Stemmer(_STEMMERS[language]))  # pyright: ignore[reportUnknownMemberType] - it has no types
