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
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET, category: str | Unset = UNSET,
        q: str | Unset = UNSET,
    ) -> Page[models.TemplateSummary]:
        """
        List the templates shipped with Rookery and those of the workspace, ordered by slug.

        Requires the scope `templates.read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            category: The category, a filter of lists.
            q: Words to find in the slug, name or description.
        """
        return self._session.send_page(Call(
            operation="list_templates", method="GET", path="/api/agent/templates", result=PageBody[models.TemplateSummary],
            query=given(cursor=cursor, page=page, per_page=per_page, category=category, q=q),
        ))

    def create_template(
        self, *, name: str, phases: Sequence[inputs.TemplatePhase], slug: str, if_match: str | Unset = UNSET,
        description: str | Unset = UNSET, category: str | Unset | None = UNSET, variables: Mapping[str, object] | Unset = UNSET,
        guidelines: Sequence[str] | Unset = UNSET, plan: inputs.PlanOfTemplate | Unset | None = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Template:
        """
        Create a plan template in the workspace.

        Requires the scope `templates.write`.

        Args:
            name: The name of the template.
            phases: A phase of a template, in the format of a new plan. Its texts can contain placeholders. A string in `tasks` is a
                name.
            slug: The name of the template in URLs: lower-case letters, digits and hyphens.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            description: When to use it. Default: `""`.
            category: The category, a filter of lists.
            variables: The variables by name.
            guidelines: Rules for the work. They are added to the description of the plan.
            plan: The fields of the new plan. The default title is the name of the template.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="create_template", method="POST", path="/api/agent/templates", result=models.Template,
            headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, category=category, variables=variables, guidelines=guidelines, plan=plan,
                phases=phases, slug=slug,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    def get_template(self, slug: str, *, version: str | Unset = UNSET) -> models.Template:
        """
        Return a template, in the current version or in the one that `version` names.

        Requires the scope `templates.read`.

        Args:
            slug: The slug of a template.
            version: A version: a hash of the content of the template.
        """
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
        """
        Replace a template by a new version. The same content again changes nothing.

        Requires the scope `templates.write`.

        Args:
            slug: The slug of a template.
            name: The name of the template.
            phases: A phase of a template, in the format of a new plan. Its texts can contain placeholders. A string in `tasks` is a
                name.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            description: When to use it. Default: `""`.
            category: The category, a filter of lists.
            variables: The variables by name.
            guidelines: Rules for the work. They are added to the description of the plan.
            plan: The fields of the new plan. The default title is the name of the template.
            source: Read-only; ignored.
            version: Read-only; ignored.
            phase_names: Read-only; ignored.
            tasks: Read-only; ignored.
            created_at: Read-only; ignored.
            updated_at: Read-only; ignored.
        """
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
        """
        Delete a template with all its versions. Plans that were created from it stay.

        Requires the scope `templates.write`.

        Args:
            slug: The slug of a template.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="delete_template", method="DELETE", path=fill_path("/api/agent/templates/{slug}", slug=slug), result=type(None),
            headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    def list_template_versions(
        self, slug: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> Page[models.AgentsVersion]:
        """
        List the versions of a template, the current one first.

        Requires the scope `templates.read`.

        Args:
            slug: The slug of a template.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
        """
        return self._session.send_page(Call(
            operation="list_template_versions", method="GET", path=fill_path("/api/agent/templates/{slug}/versions", slug=slug),
            result=PageBody[models.AgentsVersion], query=given(cursor=cursor, page=page, per_page=per_page),
        ))

    def copy_template(
        self, slug: str, *, body_slug: str, if_match: str | Unset = UNSET, name: str | Unset | None = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Template:
        """
        Copy a template, for example one shipped with Rookery, to a new template of the workspace.

        Requires the scope `templates.write`.

        Args:
            slug: The slug of a template.
            body_slug: The name of the template in URLs: lower-case letters, digits and hyphens.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="copy_template", method="POST", path=fill_path("/api/agent/templates/{slug}/copies", slug=slug),
            result=models.Template, headers=given(**{"If-Match": if_match}), body=given(name=name, **{"slug": body_slug}),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    def create_plan_from_template(
        self, slug: str, *, if_match: str | Unset = UNSET, variables: Mapping[str, object] | Unset = UNSET,
        version: str | Unset | None = UNSET, title: str | Unset | None = UNSET, description: str | Unset | None = UNSET,
        body_slug: str | Unset | None = UNSET, status: Literal["draft", "active"] | Unset = UNSET, org: str | Unset | None = UNSET,
        project: str | Unset | None = UNSET, metadata: Mapping[str, object] | Unset | None = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Plan:
        """
        Create a plan with its phases and tasks from a template, in one transaction.

        The plan records the template, its version and the variables.

        Requires the scope `templates.instantiate`.

        Args:
            slug: The slug of a template.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            variables: Values by variable name. Variables with a default can be omitted.
            version: A version: a hash of the content of the template.
            title: Replaces the title of the template.
            description: Replaces the description of the template, including the guidelines.
            body_slug: The name of the plan in URLs, unique in the workspace. Default: made from the title.
            status: Tasks of a draft are claimed only on requests for the plan, one of its tasks or its session. Default: `"draft"`.
            org: The organisation namespace.
            project: The project within the org.
            metadata: Added to the metadata of the template.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="create_plan_from_template", method="POST", path=fill_path("/api/agent/templates/{slug}/plans", slug=slug),
            result=models.Plan, headers=given(**{"If-Match": if_match}),
            body=given(
                variables=variables, version=version, title=title, description=description, status=status, org=org, project=project,
                metadata=metadata, **{"slug": body_slug},
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    def preview_template(
        self, slug: str, *, if_match: str | Unset = UNSET, variables: Mapping[str, object] | Unset = UNSET,
        version: str | Unset | None = UNSET,
    ) -> models.Preview:
        """
        Return the plan that a template would create, without storing it.

        Requires the scope `templates.read`.

        Args:
            slug: The slug of a template.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            variables: Values by variable name. Variables with a default can be omitted.
            version: A version: a hash of the content of the template.
        """
        return self._session.send(Call(
            operation="preview_template", method="POST", path=fill_path("/api/agent/templates/{slug}/preview", slug=slug),
            result=models.Preview, headers=given(**{"If-Match": if_match}), body=given(variables=variables, version=version),
            repeatable=True,
        ))


class AsyncTemplatesOperations:
    """Operations of `client.templates`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list_templates(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET, category: str | Unset = UNSET,
        q: str | Unset = UNSET,
    ) -> AsyncPage[models.TemplateSummary]:
        """
        List the templates shipped with Rookery and those of the workspace, ordered by slug.

        Requires the scope `templates.read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            category: The category, a filter of lists.
            q: Words to find in the slug, name or description.
        """
        return await self._session.send_page(Call(
            operation="list_templates", method="GET", path="/api/agent/templates", result=PageBody[models.TemplateSummary],
            query=given(cursor=cursor, page=page, per_page=per_page, category=category, q=q),
        ))

    async def create_template(
        self, *, name: str, phases: Sequence[inputs.TemplatePhase], slug: str, if_match: str | Unset = UNSET,
        description: str | Unset = UNSET, category: str | Unset | None = UNSET, variables: Mapping[str, object] | Unset = UNSET,
        guidelines: Sequence[str] | Unset = UNSET, plan: inputs.PlanOfTemplate | Unset | None = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Template:
        """
        Create a plan template in the workspace.

        Requires the scope `templates.write`.

        Args:
            name: The name of the template.
            phases: A phase of a template, in the format of a new plan. Its texts can contain placeholders. A string in `tasks` is a
                name.
            slug: The name of the template in URLs: lower-case letters, digits and hyphens.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            description: When to use it. Default: `""`.
            category: The category, a filter of lists.
            variables: The variables by name.
            guidelines: Rules for the work. They are added to the description of the plan.
            plan: The fields of the new plan. The default title is the name of the template.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="create_template", method="POST", path="/api/agent/templates", result=models.Template,
            headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, category=category, variables=variables, guidelines=guidelines, plan=plan,
                phases=phases, slug=slug,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def get_template(self, slug: str, *, version: str | Unset = UNSET) -> models.Template:
        """
        Return a template, in the current version or in the one that `version` names.

        Requires the scope `templates.read`.

        Args:
            slug: The slug of a template.
            version: A version: a hash of the content of the template.
        """
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
        """
        Replace a template by a new version. The same content again changes nothing.

        Requires the scope `templates.write`.

        Args:
            slug: The slug of a template.
            name: The name of the template.
            phases: A phase of a template, in the format of a new plan. Its texts can contain placeholders. A string in `tasks` is a
                name.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            description: When to use it. Default: `""`.
            category: The category, a filter of lists.
            variables: The variables by name.
            guidelines: Rules for the work. They are added to the description of the plan.
            plan: The fields of the new plan. The default title is the name of the template.
            source: Read-only; ignored.
            version: Read-only; ignored.
            phase_names: Read-only; ignored.
            tasks: Read-only; ignored.
            created_at: Read-only; ignored.
            updated_at: Read-only; ignored.
        """
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
        """
        Delete a template with all its versions. Plans that were created from it stay.

        Requires the scope `templates.write`.

        Args:
            slug: The slug of a template.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="delete_template", method="DELETE", path=fill_path("/api/agent/templates/{slug}", slug=slug), result=type(None),
            headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    async def list_template_versions(
        self, slug: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> AsyncPage[models.AgentsVersion]:
        """
        List the versions of a template, the current one first.

        Requires the scope `templates.read`.

        Args:
            slug: The slug of a template.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
        """
        return await self._session.send_page(Call(
            operation="list_template_versions", method="GET", path=fill_path("/api/agent/templates/{slug}/versions", slug=slug),
            result=PageBody[models.AgentsVersion], query=given(cursor=cursor, page=page, per_page=per_page),
        ))

    async def copy_template(
        self, slug: str, *, body_slug: str, if_match: str | Unset = UNSET, name: str | Unset | None = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Template:
        """
        Copy a template, for example one shipped with Rookery, to a new template of the workspace.

        Requires the scope `templates.write`.

        Args:
            slug: The slug of a template.
            body_slug: The name of the template in URLs: lower-case letters, digits and hyphens.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="copy_template", method="POST", path=fill_path("/api/agent/templates/{slug}/copies", slug=slug),
            result=models.Template, headers=given(**{"If-Match": if_match}), body=given(name=name, **{"slug": body_slug}),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def create_plan_from_template(
        self, slug: str, *, if_match: str | Unset = UNSET, variables: Mapping[str, object] | Unset = UNSET,
        version: str | Unset | None = UNSET, title: str | Unset | None = UNSET, description: str | Unset | None = UNSET,
        body_slug: str | Unset | None = UNSET, status: Literal["draft", "active"] | Unset = UNSET, org: str | Unset | None = UNSET,
        project: str | Unset | None = UNSET, metadata: Mapping[str, object] | Unset | None = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Plan:
        """
        Create a plan with its phases and tasks from a template, in one transaction.

        The plan records the template, its version and the variables.

        Requires the scope `templates.instantiate`.

        Args:
            slug: The slug of a template.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            variables: Values by variable name. Variables with a default can be omitted.
            version: A version: a hash of the content of the template.
            title: Replaces the title of the template.
            description: Replaces the description of the template, including the guidelines.
            body_slug: The name of the plan in URLs, unique in the workspace. Default: made from the title.
            status: Tasks of a draft are claimed only on requests for the plan, one of its tasks or its session. Default: `"draft"`.
            org: The organisation namespace.
            project: The project within the org.
            metadata: Added to the metadata of the template.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="create_plan_from_template", method="POST", path=fill_path("/api/agent/templates/{slug}/plans", slug=slug),
            result=models.Plan, headers=given(**{"If-Match": if_match}),
            body=given(
                variables=variables, version=version, title=title, description=description, status=status, org=org, project=project,
                metadata=metadata, **{"slug": body_slug},
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def preview_template(
        self, slug: str, *, if_match: str | Unset = UNSET, variables: Mapping[str, object] | Unset = UNSET,
        version: str | Unset | None = UNSET,
    ) -> models.Preview:
        """
        Return the plan that a template would create, without storing it.

        Requires the scope `templates.read`.

        Args:
            slug: The slug of a template.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            variables: Values by variable name. Variables with a default can be omitted.
            version: A version: a hash of the content of the template.
        """
        return await self._session.send(Call(
            operation="preview_template", method="POST", path=fill_path("/api/agent/templates/{slug}/preview", slug=slug),
            result=models.Preview, headers=given(**{"If-Match": if_match}), body=given(variables=variables, version=version),
            repeatable=True,
        ))
