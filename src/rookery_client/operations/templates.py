"""
Operations of `client.templates`.

Written by `make client` from the declarations of the operations. Change those, not this file.
"""

# fmt: off

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal


from rookery_client.calls import UNSET, Call, Unset, fill_path, given
from rookery_client.generated import inputs, models
from rookery_client.pages import AsyncPage, Page, PageBody
from rookery_client.sessions import AsyncSession, Session


class TemplatesOperations:
    """Operations of `client.templates`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list_templates(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, category: str | Unset = UNSET, q: str | Unset = UNSET,
    ) -> Page[models.TemplateSummary]:
        """List plan templates."""
        return self._session.send_page(Call(
            operation="list_templates", method="GET", path="/api/agent/templates", result=PageBody[models.TemplateSummary],
            query=given(page=page, per_page=per_page, category=category, q=q),
        ))

    def create_template(
        self, *, name: str, phases: Sequence[inputs.TemplatePhase], slug: str, if_match: str | Unset = UNSET,
        description: str | Unset = UNSET, category: str | Unset | None = UNSET, variables: Mapping[str, object] | Unset = UNSET,
        guidelines: Sequence[str] | Unset = UNSET, plan: inputs.PlanOfTemplate | Unset | None = UNSET,
    ) -> models.Template:
        """Create a template."""
        return self._session.send(Call(
            operation="create_template", method="POST", path="/api/agent/templates", result=models.Template,
            headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, category=category, variables=variables, guidelines=guidelines, plan=plan,
                phases=phases, slug=slug,
            ),
            accepts_key=True,
        ))

    def get_template(self, slug: str, *, version: str | Unset = UNSET) -> models.Template:
        """Show a template."""
        return self._session.send(Call(
            operation="get_template", method="GET", path=fill_path("/api/agent/templates/{slug}", slug=slug), result=models.Template,
            query=given(version=version),
        ))

    def replace_template(
        self, slug: str, *, name: str, phases: Sequence[inputs.TemplatePhase], if_match: str | Unset = UNSET,
        description: str | Unset = UNSET, category: str | Unset | None = UNSET, variables: Mapping[str, object] | Unset = UNSET,
        guidelines: Sequence[str] | Unset = UNSET, plan: inputs.PlanOfTemplate | Unset | None = UNSET,
        body_slug: str | Unset | None = UNSET, source: object | Unset = UNSET, version: object | Unset = UNSET,
        phase_names: object | Unset = UNSET, tasks: object | Unset = UNSET, created_at: object | Unset = UNSET,
        updated_at: object | Unset = UNSET,
    ) -> models.Template:
        """Replace a template."""
        return self._session.send(Call(
            operation="replace_template", method="PUT", path=fill_path("/api/agent/templates/{slug}", slug=slug), result=models.Template,
            headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, category=category, variables=variables, guidelines=guidelines, plan=plan,
                phases=phases, source=source, version=version, phase_names=phase_names, tasks=tasks, created_at=created_at,
                updated_at=updated_at, **{"slug": body_slug},
            ),
        ))

    def delete_template(self, slug: str, *, if_match: str | Unset = UNSET) -> None:
        """Delete a template with its versions."""
        return self._session.send(Call(
            operation="delete_template", method="DELETE", path=fill_path("/api/agent/templates/{slug}", slug=slug), result=type(None),
            headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    def list_template_versions(
        self, slug: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> Page[models.AgentsVersion]:
        """List the versions of a template."""
        return self._session.send_page(Call(
            operation="list_template_versions", method="GET", path=fill_path("/api/agent/templates/{slug}/versions", slug=slug),
            result=PageBody[models.AgentsVersion], query=given(page=page, per_page=per_page),
        ))

    def copy_template(
        self, slug: str, *, body_slug: str, if_match: str | Unset = UNSET, name: str | Unset | None = UNSET,
    ) -> models.Template:
        """Copy a template."""
        return self._session.send(Call(
            operation="copy_template", method="POST", path=fill_path("/api/agent/templates/{slug}/copies", slug=slug),
            result=models.Template, headers=given(**{"If-Match": if_match}), body=given(name=name, **{"slug": body_slug}),
            accepts_key=True,
        ))

    def create_plan_from_template(
        self, slug: str, *, if_match: str | Unset = UNSET, variables: Mapping[str, object] | Unset = UNSET,
        version: str | Unset | None = UNSET, title: str | Unset | None = UNSET, description: str | Unset | None = UNSET,
        body_slug: str | Unset | None = UNSET, status: Literal["draft", "active"] | Unset = UNSET, org: str | Unset | None = UNSET,
        project: str | Unset | None = UNSET, metadata: Mapping[str, object] | Unset | None = UNSET,
    ) -> models.Plan:
        """Create a plan from a template."""
        return self._session.send(Call(
            operation="create_plan_from_template", method="POST", path=fill_path("/api/agent/templates/{slug}/plans", slug=slug),
            result=models.Plan, headers=given(**{"If-Match": if_match}),
            body=given(
                variables=variables, version=version, title=title, description=description, status=status, org=org, project=project,
                metadata=metadata, **{"slug": body_slug},
            ),
            accepts_key=True,
        ))

    def preview_template(
        self, slug: str, *, if_match: str | Unset = UNSET, variables: Mapping[str, object] | Unset = UNSET,
        version: str | Unset | None = UNSET,
    ) -> models.Preview:
        """Preview a template."""
        return self._session.send(Call(
            operation="preview_template", method="POST", path=fill_path("/api/agent/templates/{slug}/preview", slug=slug),
            result=models.Preview, headers=given(**{"If-Match": if_match}), body=given(variables=variables, version=version),
        ))


class AsyncTemplatesOperations:
    """Operations of `client.templates`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list_templates(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, category: str | Unset = UNSET, q: str | Unset = UNSET,
    ) -> AsyncPage[models.TemplateSummary]:
        """List plan templates."""
        return await self._session.send_page(Call(
            operation="list_templates", method="GET", path="/api/agent/templates", result=PageBody[models.TemplateSummary],
            query=given(page=page, per_page=per_page, category=category, q=q),
        ))

    async def create_template(
        self, *, name: str, phases: Sequence[inputs.TemplatePhase], slug: str, if_match: str | Unset = UNSET,
        description: str | Unset = UNSET, category: str | Unset | None = UNSET, variables: Mapping[str, object] | Unset = UNSET,
        guidelines: Sequence[str] | Unset = UNSET, plan: inputs.PlanOfTemplate | Unset | None = UNSET,
    ) -> models.Template:
        """Create a template."""
        return await self._session.send(Call(
            operation="create_template", method="POST", path="/api/agent/templates", result=models.Template,
            headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, category=category, variables=variables, guidelines=guidelines, plan=plan,
                phases=phases, slug=slug,
            ),
            accepts_key=True,
        ))

    async def get_template(self, slug: str, *, version: str | Unset = UNSET) -> models.Template:
        """Show a template."""
        return await self._session.send(Call(
            operation="get_template", method="GET", path=fill_path("/api/agent/templates/{slug}", slug=slug), result=models.Template,
            query=given(version=version),
        ))

    async def replace_template(
        self, slug: str, *, name: str, phases: Sequence[inputs.TemplatePhase], if_match: str | Unset = UNSET,
        description: str | Unset = UNSET, category: str | Unset | None = UNSET, variables: Mapping[str, object] | Unset = UNSET,
        guidelines: Sequence[str] | Unset = UNSET, plan: inputs.PlanOfTemplate | Unset | None = UNSET,
        body_slug: str | Unset | None = UNSET, source: object | Unset = UNSET, version: object | Unset = UNSET,
        phase_names: object | Unset = UNSET, tasks: object | Unset = UNSET, created_at: object | Unset = UNSET,
        updated_at: object | Unset = UNSET,
    ) -> models.Template:
        """Replace a template."""
        return await self._session.send(Call(
            operation="replace_template", method="PUT", path=fill_path("/api/agent/templates/{slug}", slug=slug), result=models.Template,
            headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, category=category, variables=variables, guidelines=guidelines, plan=plan,
                phases=phases, source=source, version=version, phase_names=phase_names, tasks=tasks, created_at=created_at,
                updated_at=updated_at, **{"slug": body_slug},
            ),
        ))

    async def delete_template(self, slug: str, *, if_match: str | Unset = UNSET) -> None:
        """Delete a template with its versions."""
        return await self._session.send(Call(
            operation="delete_template", method="DELETE", path=fill_path("/api/agent/templates/{slug}", slug=slug), result=type(None),
            headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    async def list_template_versions(
        self, slug: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> AsyncPage[models.AgentsVersion]:
        """List the versions of a template."""
        return await self._session.send_page(Call(
            operation="list_template_versions", method="GET", path=fill_path("/api/agent/templates/{slug}/versions", slug=slug),
            result=PageBody[models.AgentsVersion], query=given(page=page, per_page=per_page),
        ))

    async def copy_template(
        self, slug: str, *, body_slug: str, if_match: str | Unset = UNSET, name: str | Unset | None = UNSET,
    ) -> models.Template:
        """Copy a template."""
        return await self._session.send(Call(
            operation="copy_template", method="POST", path=fill_path("/api/agent/templates/{slug}/copies", slug=slug),
            result=models.Template, headers=given(**{"If-Match": if_match}), body=given(name=name, **{"slug": body_slug}),
            accepts_key=True,
        ))

    async def create_plan_from_template(
        self, slug: str, *, if_match: str | Unset = UNSET, variables: Mapping[str, object] | Unset = UNSET,
        version: str | Unset | None = UNSET, title: str | Unset | None = UNSET, description: str | Unset | None = UNSET,
        body_slug: str | Unset | None = UNSET, status: Literal["draft", "active"] | Unset = UNSET, org: str | Unset | None = UNSET,
        project: str | Unset | None = UNSET, metadata: Mapping[str, object] | Unset | None = UNSET,
    ) -> models.Plan:
        """Create a plan from a template."""
        return await self._session.send(Call(
            operation="create_plan_from_template", method="POST", path=fill_path("/api/agent/templates/{slug}/plans", slug=slug),
            result=models.Plan, headers=given(**{"If-Match": if_match}),
            body=given(
                variables=variables, version=version, title=title, description=description, status=status, org=org, project=project,
                metadata=metadata, **{"slug": body_slug},
            ),
            accepts_key=True,
        ))

    async def preview_template(
        self, slug: str, *, if_match: str | Unset = UNSET, variables: Mapping[str, object] | Unset = UNSET,
        version: str | Unset | None = UNSET,
    ) -> models.Preview:
        """Preview a template."""
        return await self._session.send(Call(
            operation="preview_template", method="POST", path=fill_path("/api/agent/templates/{slug}/preview", slug=slug),
            result=models.Preview, headers=given(**{"If-Match": if_match}), body=given(variables=variables, version=version),
        ))
