"""Each recorded answer of a server of language models, played to Rookery, and the page about them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.chat_service import ChatService, run_chat_service
from tests.text_generation_servers.exchanges import Exchange, ServerExchanges, load_servers
from tests.text_generation_servers.page import PAGE, list_differences, render
from tests.text_generation_servers.replay import play
from tests.text_generation_servers.servers import HERE, KEY, SERVERS
from tests.text_generation_servers.upstream import UPSTREAM_KEY

_RECORDED = load_servers()
_EXCHANGES = [(server, exchange) for server in _RECORDED for exchange in server.exchanges]


@pytest.fixture(scope="module")
def service() -> Iterator[ChatService]:
    """Yield a service that sends the recorded answers."""
    with run_chat_service() as running:
        yield running


@pytest.mark.parametrize(("server", "exchange"), _EXCHANGES, ids=[f"{server.id}: {exchange.name}" for server, exchange in _EXCHANGES])
async def test_rookery_does_with_an_answer_what_the_record_says(service: ChatService, server: ServerExchanges, exchange: Exchange) -> None:
    """`make text-generation-servers ARGS=--outcomes` writes the record again; its difference shows what a change of Rookery does."""
    assert await play(service, exchange) == exchange.outcome, server.title


def test_the_page_is_that_of_the_record() -> None:
    """Nobody edits the page by hand."""
    assert PAGE.read_text(encoding="utf-8") == render(_RECORDED)


def test_the_tokens_that_are_billed_are_charged() -> None:
    """On 20 usages and more, within 1 % of the provider's own total. A proxy that loses tokens is named on the page."""
    recorded = [server for server in _RECORDED if server.source == "recorded"]
    differences = [(share, exchange) for _, exchange, share in list_differences(recorded) if not exchange.comment]

    assert len(differences) >= 20
    assert max(share for share, _ in differences) <= 0.01


def test_no_record_contains_a_key_or_the_name_of_this_host() -> None:
    """The keys of the recording are known, so that any part of them is seen."""
    for path in (HERE / "exchanges").glob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert not any(secret in text for secret in (KEY, UPSTREAM_KEY, str(HERE.parents[1]), "/home/")), path.name


def test_every_server_is_pinned_and_recorded() -> None:
    """A server that is updated without a run fails here."""
    versions = {server.id: server.version for server in _RECORDED}
    packages = json.loads((HERE / "package.json").read_text(encoding="utf-8"))["optionalDependencies"]
    locks = {"litellm": HERE / "litellm.lock", "llama-cpp": HERE.parent / "upstreams" / "llama.lock"}
    for server in SERVERS:
        assert versions[server.id] == f"{server.package} {server.version}"
        lock = locks.get(server.id)
        is_pinned = (
            packages.get(server.package) == server.version if lock is None else f"{server.package}=={server.version}" in lock.read_text()
        )
        assert is_pinned, server.id
