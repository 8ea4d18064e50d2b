"""
The operations of content generation.

They are the HTTP API, with the same routes under /api/agent and under /v1, and the tools of the MCP server `content`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rookery.content import tool_declarations
from rookery.content.api.batches import BatchApi
from rookery.content.api.budgets import BudgetApi
from rookery.content.api.generations import GenerationApi
from rookery.content.api.prompt_templates import PromptTemplateApi
from rookery.content.wiring import ContentServices
from rookery.kernel.http import Operation
from rookery.kernel.http.operation_tools import OperationServer


@dataclass(frozen=True, slots=True)
class ContentApi:
    """The operations of generations, batches, prompt templates, budgets and usage."""

    services: ContentServices

    def server(self) -> OperationServer:
        """Return the built-in MCP server `content`."""
        return OperationServer(
            self._generation_operations(),
            tool_declarations.SERVER,
            compact=tool_declarations.compact_output,
            render_text=tool_declarations.render_text,
        )

    def operations(self) -> list[Operation]:
        """Return all operations, with paths relative to the prefix."""
        services = self.services
        return [
            *self._generation_operations(),
            *BatchApi(batches=services.batches).operations(),
            *PromptTemplateApi(templates=services.templates).operations(),
            *BudgetApi(budgets=services.budgets).operations(),
        ]

    def _generation_operations(self) -> list[Operation]:
        return GenerationApi(generations=self.services.generations, scorer=self.services.output_scorer).operations()
