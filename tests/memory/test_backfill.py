"""brain:backfill-org (spec 4.4, D-52)."""

from __future__ import annotations

import pytest

from rookery.memory.batch_runs import RunItem, RunObserver
from rookery.memory.maintenance.backfill import BackfillRequest, parse_org
from rookery.memory.models import MemoryScope, MemoryState, RecallRequest, get_state
from tests.memory.makers import MODEL, MemoryRig, make_caller


@pytest.mark.parametrize(
    ("project", "org"),
    [
        ("acme/web", "acme"),
        ("acme/web/api", "acme"),
        ("web", None),
        ("/web", None),
        ("acme/", None),
        (f"{'a' * 101}/web", None),
        (" /web", None),
    ],
)
def test_a_project_names_its_org_before_a_slash(project: str, org: str | None) -> None:
    """D-52: `org/name` in project → org."""
    assert parse_org(project) == org


async def test_orgs_are_filled_in_where_they_are_beyond_doubt(rig: MemoryRig) -> None:
    """Spec 4.4: infers org from project; D-52: else the one org under which that project is known; D-45: leaves Stale."""
    known = await rig.remember("known", org="acme", project="web")
    named = await rig.remember("named", org=None, project="zoo/web")
    inferred = await rig.remember("inferred", org=None, project="web", memory_scope=MemoryScope.AGENT, agent_id="kim")
    for org in ("acme", "zoo"):
        await rig.remember("of two", org=org, project="shared")
    ambiguous = await rig.remember("ambiguous", org=None, project="shared")
    bare = await rig.remember("bare", org=None, project=None)
    foreign = await rig.remember("foreign", make_caller(workspace_id=2), org=None, project="acme/web")
    await rig.run_jobs()
    told, done = list[RunItem](), list[RunItem]()

    dry = await rig.services.maintenance.backfill.run(
        BackfillRequest(workspace_id=1, dry_run=True), observer=RunObserver(on_item=told.append, on_progress=lambda done, total: None)
    )
    assert (await rig.reload(named)).org is None
    real = await rig.services.maintenance.backfill.run(
        BackfillRequest(workspace_id=1), observer=RunObserver(on_item=done.append, on_progress=lambda done, total: None)
    )
    again = await rig.services.maintenance.backfill.run(BackfillRequest(workspace_id=1))

    assert [(await rig.reload(each)).org for each in (known, named, inferred, ambiguous, bare, foreign)] == [
        "acme", "zoo", "acme", None, None, None,
    ]  # fmt: skip
    assert (dry.counts, real.counts, again.counts) == (
        {"changed": 2, "unknown": 1},
        {"changed": 2, "unknown": 1},
        {"changed": 0, "unknown": 1},
    )
    assert (dry.total, told) == (3, done)
    assert (await rig.reload(named)).project == "zoo/web"
    assert get_state(await rig.reload(named), model=MODEL) is MemoryState.STALE
    found = await rig.services.recall.find(make_caller(), RecallRequest(query="named", mode="keyword"))
    assert [hit.memory.id for hit in found.hits] == [named.id]
