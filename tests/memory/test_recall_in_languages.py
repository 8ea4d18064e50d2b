"""Recall by words in other languages than English."""

from __future__ import annotations

import pytest

from rookery.memory.models import MemoryFilter
from rookery.memory.recall_models import RecallRequest
from tests.memory.makers import MemoryRig, make_caller

_MEMORIES = [
    "We never deploy on Fridays, and no one is on call then.",
    "The war room was an idea of the on-call team.",
    "Die Häuser am Hafen sind alle vermietet.",
    "Der Rechner an-17 hat die Adresse 10.0.0.17.",
    "Le journal régional est imprimé dans la cave.",
    "On a perdu la clé de la cave.",
    "Vamos a comer en el puerto con todos los invitados.",
    "No usamos contenedores en la oficina.",
    "Os servidores não ficam na mesma sala que as impressoras.",
    "Мы храним секреты в сейфе.",
    "أخي مصاب بالسكري ولا يأكل الحلويات.",
    "लड़कियों का स्कूल नदी के पास है।",
]


async def _recall_best(rig: MemoryRig, question: str) -> str | None:
    for content in _MEMORIES:
        await rig.remember(content)
    request = RecallRequest(query=question, filters=MemoryFilter(), mode="keyword")
    hits = (await rig.services.recall.find(make_caller(), request)).hits
    return hits[0].memory.content if hits else None


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Wem gehört das Haus?", "Die Häuser am Hafen"),
        ("Quels journaux régionaux ?", "Le journal régional"),
        ("¿Dónde está comiendo?", "Vamos a comer"),
        ("Quem ficará?", "Os servidores"),
        ("Кто забыл про секретный сейф?", "Мы храним секреты"),
        ("لماذا نتجنب السكر؟", "أخي مصاب"),
        ("लड़की", "लड़कियों का"),
    ],
)
async def test_a_memory_is_found_by_another_form_of_its_words(rig: MemoryRig, question: str, answer: str) -> None:
    """Words are stemmed in the language of the memory and of the question."""
    assert str(await _recall_best(rig, question)).startswith(answer)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Was ist die IP von an-17?", "Der Rechner an-17"),
        ("¿Hay contenedores o no?", "No usamos"),
        ("Qui on a vu ?", "On a perdu"),
    ],
)
async def test_words_that_look_like_english_stop_words_are_searched(rig: MemoryRig, question: str, answer: str) -> None:
    """The stop words of English carry a meaning in other languages."""
    assert str(await _recall_best(rig, question)).startswith(answer)
