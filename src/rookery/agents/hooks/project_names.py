"""
The project of a repository.

The first repository of a name has that name as its project; another one has its full name, or the name with a part of its id. So nothing
that is stored for one reaches the other, and what was stored under the plain name stays with one repository.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rookery.access.models import Caller
from rookery.agents.models.agent_hooks import HookProject
from rookery.agents.ports import FreeSpace
from rookery.agents.sessions.access import require_org_and_project
from rookery.agents.store import repositories as store
from rookery.coding_agents.hook_declarations import MAX_PROJECT_CHARS
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx

_SHORT_ID_CHARS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectNames:
    """The projects of repositories, each stored when its first event arrives."""

    db: Database
    clock: Clock
    disk: FreeSpace

    async def resolve(self, caller: Caller, project: HookProject) -> HookProject:
        """
        Return *project* with the name that its repository has in the workspace.

        A name from `.rookery.toml`, and that of a client that sends no id, stay as they are.

        Raises:
            NotInAllowList: The key of *caller* does not allow the org or project.
            StorageFull: The repository is new, and the disk is nearly full.
        """
        if not project.ids:
            return project
        if project.is_named:
            if await self.db.lookup(lambda tx: store.find_by_name(tx, caller.workspace_id, project.project)) is None:
                self.disk.require()
                await self.db.write(lambda tx: self._add_named(tx, caller, project), is_synced=False)
            return project
        name = await self.db.lookup(lambda tx: _find_stored(tx, caller, project))
        if name is None:
            self.disk.require()
            name = await self.db.write(lambda tx: self._store(tx, caller, project))
        return replace(project, project=name, taken_name=None if name == project.project else project.project)

    def _add_named(self, tx: Tx, caller: Caller, project: HookProject) -> None:
        require_org_and_project(caller, project.org, project.project)
        store.add_name(tx, caller.workspace_id, project.project, project.ids[0], at=self.clock())

    def _store(self, tx: Tx, caller: Caller, project: HookProject) -> str:
        """Store the project of a repository of which an id is new, and return its name."""
        workspace_id, now = caller.workspace_id, self.clock()
        names_by_id = store.find_projects(tx, workspace_id, _list_all_ids(project))
        name = next((names_by_id[id_] for id_ in _list_all_ids(project) if id_ in names_by_id), None) or self._add_name(tx, caller, project)
        require_org_and_project(caller, project.org, name)
        for id_ in project.ids:
            store.add(tx, workspace_id, id_, name, at=now)
        if project.remotes and project.folder is not None:
            store.rename(tx, workspace_id, project.folder, project.ids[0])  # another repository may be in this folder one day
        return name

    def _add_name(self, tx: Tx, caller: Caller, project: HookProject) -> str:
        workspace_id, name = caller.workspace_id, ""
        for name in _list_names(project):  # the last one has the whole id, so that no other repository has it
            if store.add_name(tx, workspace_id, name, project.ids[0], at=self.clock()):
                break
            if store.find_by_name(tx, workspace_id, name) in _list_all_ids(project):
                break
        return name


def _find_stored(tx: Tx, caller: Caller, project: HookProject) -> str | None:
    """Return the stored name if nothing is to be written."""
    names_by_id = store.find_projects(tx, caller.workspace_id, _list_all_ids(project))
    if any(id_ not in names_by_id for id_ in project.ids) or (project.remotes and project.folder in names_by_id):
        return None
    return names_by_id[project.ids[0]]


def _list_all_ids(project: HookProject) -> list[str]:
    """Return the ids of the remotes and then that of the folder, under which the repository is known from before its first remote."""
    return [*project.remotes, *([] if project.folder is None else [project.folder])]


def _list_names(project: HookProject) -> Iterator[str]:
    """Yield the names that the project may have, the best first."""
    limit = MAX_PROJECT_CHARS["project"]
    yield project.project
    if project.full_name is not None:
        yield project.full_name
    for size in (_SHORT_ID_CHARS, None):
        suffix = f"-{project.ids[0][:size]}"
        yield project.project[: limit - len(suffix)] + suffix
