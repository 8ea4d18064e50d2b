"""brain:backfill-org."""

from __future__ import annotations

import pytest

from rookery.memory.batch_runs import RunItem, RunObserver
from rookery.memory.maintenance.backfill import BackfillRequest, parse_org
from rookery.memory.models import MemoryScope, MemoryState, get_state
from rookery.memory.recall_models import RecallRequest
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
def test_the_org_stands_before_the_slash_of_a_project(project: str, org: str | None) -> None:
    """A project `org/name` gives the org."""
    assert parse_org(project) == org


async def test_backfill_sets_the_org_where_it_is_unambiguous(rig: MemoryRig) -> None:
    """Backfill takes the org from the project, else the only org with that project; the memory becomes stale."""
    with_org = await rig.remember("known", org="acme", project="web")
    org_in_project = await rig.remember("named", org=None, project="zoo/web")
    inferred = await rig.remember("inferred", org=None, project="web", memory_scope=MemoryScope.AGENT, agent_id="kim")
    for org in ("acme", "zoo"):
        await rig.remember("of two", org=org, project="shared")
    ambiguous = await rig.remember("ambiguous", org=None, project="shared")
    without_project = await rig.remember("bare", org=None, project=None)
    foreign = await rig.remember("foreign", make_caller(workspace_id=2), org=None, project="acme/web")
    await rig.run_jobs()
    dry_run_items, items = list[RunItem](), list[RunItem]()

    dry_run = await rig.services.maintenance.backfill.run(
        BackfillRequest(workspace_id=1, dry_run=True),
        observer=RunObserver(on_item=dry_run_items.append, on_progress=lambda done, total: None),
    )
    assert (await rig.reload(org_in_project)).org is None
    report = await rig.services.maintenance.backfill.run(
        BackfillRequest(workspace_id=1), observer=RunObserver(on_item=items.append, on_progress=lambda done, total: None)
    )
    second_report = await rig.services.maintenance.backfill.run(BackfillRequest(workspace_id=1))

    assert [(await rig.reload(memory)).org for memory in (with_org, org_in_project, inferred, ambiguous, without_project, foreign)] == [
        "acme", "zoo", "acme", None, None, None,
    ]  # fmt: skip
    assert (dry_run.counts, report.counts, second_report.counts) == (
        {"changed": 2, "unknown": 1},
        {"changed": 2, "unknown": 1},
        {"changed": 0, "unknown": 1},
    )
    assert (dry_run.total, dry_run_items) == (3, items)
    assert (await rig.reload(org_in_project)).project == "zoo/web"
    assert get_state(await rig.reload(org_in_project), model=MODEL) is MemoryState.STALE
    recall = await rig.services.recall.find(make_caller(), RecallRequest(query="named", mode="keyword"))
    assert [hit.memory.id for hit in recall.hits] == [org_in_project.id]
