"""`rookery doctor`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from rookery.doctor import Finding, examine, is_well
from rookery.kernel.config import Settings
from rookery.wiring import build
from tests.conftest import House, open_house


def _about(findings: list[Finding], name: str) -> list[str]:
    return [finding.grade for finding in findings if finding.about == name]


async def test_a_healthy_installation_is_well(house: House) -> None:
    """D-28, D-51: the doctor looks at engines, memory, jobs, disk and the file of servers."""
    await house.admin.remember()
    findings = await examine(house.rookery)

    assert is_well(findings)
    assert {finding.grade for finding in findings} == {"ok"}
    assert {"database", "vectors", "texts", "embedder", "counters", "memory", "jobs", "disk", "tool servers"} == {
        each.about for each in findings
    }


async def test_the_doctor_names_what_is_wrong(settings: Settings) -> None:
    """D-28: warns when every caller has one address; D-31: a broken file is told; D-17: a full disk."""
    settings.servers_file.write_text("{", encoding="utf-8")
    async with open_house(replace(settings, min_free_disk_mb=1_000_000)) as house:
        other = await house.agent_key()
        for _ in range(60):
            await house.admin.get("/v1/brain/tags")
            await other.get("/v1/brain/tags")
        await house.rookery.access.usage.close()
        findings = await examine(house.rookery)

    assert not is_well(findings)
    assert (_about(findings, "disk"), _about(findings, "tool servers"), _about(findings, "addresses")) == (
        ["problem"],
        ["problem"],
        ["warning"],
    )


async def test_memories_of_another_model_are_told(settings: Settings) -> None:
    """D-54: a changed model makes memories stale; the doctor offers the re-index."""
    async with open_house(settings) as house:
        await house.admin.remember()
    other = build(replace(settings, embedder=type(settings.embedder)("embedded:f32")))
    async with other.for_command():
        findings = await examine(other)

    [stale] = [finding for finding in findings if finding.about == "memory"]
    assert stale.grade == "warning"
    assert "brain:reindex --stale" in str(stale.advice)


async def test_an_index_that_is_damaged_is_told_with_what_to_do(settings: Settings) -> None:
    """D-10: a message says what was wrong, with which value, and what to do."""
    Path(settings.data_dir, "vectors.db").write_bytes(b"not a database, " * 4096)
    rookery = build(settings)
    async with rookery.for_command():
        findings = await examine(rookery)

    [broken] = [finding for finding in findings if finding.about == "vectors"]
    assert broken.grade == "problem"
    assert "brain:reindex" in broken.says
    assert json.dumps(broken.says)
