"""Recall with its why on a page."""

from __future__ import annotations

import pytest

from tests.conftest import Instance
from tests.console.browsing import BrowserUser, ConsoleUser

pytestmark = pytest.mark.embedded_store  # test_links.py opens every page on each record store


async def test_each_hit_shows_its_why(instance: Instance, user: ConsoleUser) -> None:
    """Similarity, words, scope, decay and rank of each hit, and what was dropped by which rule."""
    await instance.admin.remember("The crane on pier 3 lifts 40 tons.", project="harbor")
    await instance.admin.remember("The crane on pier 4 lifts 20 tons.", project="harbor")
    await instance.admin.remember("The crane of the shop lifts tons of boxes.", project="shop")
    assert "Ask a question" in await user.read("memories/recall")
    response = await user.get("memories/recall?q=What+can+the+crane+lift&top_k=1&project=harbor&keywords=pier+3")
    assert "<mark>crane</mark>" in response.text
    page = await user.read("memories/recall?q=What+can+the+crane+lift&top_k=1&project=harbor&keywords=pier+3")
    for text in (
        "Confident.",
        "3 lifts 40 tons",
        "Similarity",
        "Neighbours",
        "Keywords pier 3",
        "for its age",
        "Left out",
        "number of results",
        "filter: project",
    ):
        assert text in page, text


async def test_recall_tells_plainly_when_it_is_not_confident(instance: Instance, user: ConsoleUser) -> None:
    """`is_confident` is told plainly, and an empty answer too."""
    await instance.admin.remember("The crane on pier 3 lifts 40 tons.")
    assert "Not confident." in await user.read("memories/recall?q=password+of+the+coffee+machine")
    assert "Nothing was recalled" in await user.read("memories/recall?q=crane&type=plan")
    assert "type" in await user.read("memories/recall?q=crane&type=Not+A+Type")
    assert (await user.get("memories/recall?q=crane&top_k=x&min_relevance=y&max_tokens=z")).status_code == 200


async def test_contents_of_hits_are_text(instance: Instance, user: ConsoleUser) -> None:
    """Nothing that a tenant wrote is markup."""
    await instance.admin.remember("A crane <mark>says</mark> <script>alert(1)</script> to all.")
    page = (await user.get("memories/recall?q=crane")).text
    assert "<script>alert" not in page
    assert "<mark>says" not in page


async def test_a_person_asks(person: BrowserUser) -> None:
    """Remember and recall in a real browser."""
    await person.go("memories/new")
    await person.type("#content", "The heron nests on the old crane.")
    await person.click("form.form button.primary")
    await person.wait_for_text("History")
    await person.go("memories/recall")
    await person.type("input[name=q]", "Where does the heron nest?")
    await person.click("form.filters button.primary")
    await person.wait_for("!!document.querySelector('.hits mark')")
    assert await person.find_faults() == []
    await person.page.resize(360, 740)
    await person.page.evaluate("document.querySelector('.more-filters').open = true")
    assert await person.find_faults() == []


@pytest.mark.parametrize(("field", "value"), [("min_relevance", "much"), ("top_k", "1.5"), ("max_tokens", "many")])
async def test_a_parameter_that_is_no_number_is_named(user: ConsoleUser, field: str, value: str) -> None:
    """A filter with a mistake is named, not ignored."""
    page = await user.read(f"memories/recall?q=crane&{field}={value}")
    assert f"{field}: must be a" in page
    assert value in page
