"""The state of the provider in `/readyz` and in the doctor's findings."""

from __future__ import annotations

from dataclasses import replace

from rookery.doctor import examine
from rookery.kernel.config import Settings
from rookery.kernel.secret import Secret
from tests.chat_service import ChatService
from tests.conftest import Instance, run_instance

_REJECTED = "The generation engine is unavailable: the provider rejects the configured key (status 401)"


async def test_the_provider_is_among_the_engines(content: Instance, provider: ChatService) -> None:
    """It is checked without a key and without generating anything."""
    ready = await content.caller(None).get("/readyz")

    assert (ready.status_code, ready.json()["status"], ready.json()["engines"]["generation"]) == (200, "ok", "ok")
    assert provider.requests == []
    assert len(provider.probes) == 1


async def test_a_provider_that_fails_degrades_the_server(content_settings: Settings, provider: ChatService) -> None:
    """Everything else works, so the status stays 200. The doctor names the setting, and nothing contains the key."""
    settings = replace(content_settings, generation=Secret(provider.url(key="sk-another-key")))
    provider.probe_status = 401
    async with run_instance(settings) as instance:
        ready = await instance.caller(None).get("/readyz")
        (finding,) = (each for each in await examine(instance.rookery) if each.about == "generation")

    assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
    assert ready.json()["engines"]["generation"] == finding.says == _REJECTED
    assert finding.grade == "problem"
    assert "correct ROOKERY_GENERATION" in str(finding.advice)


async def test_without_a_provider_there_is_nothing_to_check(instance: Instance) -> None:
    """An engine without a setting is not degraded."""
    assert "generation" not in (await instance.caller(None).get("/readyz")).json()["engines"]
