"""An MCP server of a shop, over stdio: its tools have unions, references, nested objects, lists and null, ask, report progress and fail."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    TextContent,
    ToolAnnotations,
)
from pydantic import BaseModel, Field

server = MCPServer("shop", instructions="Amounts are integers in cents. Look an order up before you change it.")

READ_ONLY = ToolAnnotations(read_only_hint=True)
_ORDERS: dict[str, dict[str, object]] = {
    "A-1041": {"customer": "ines@example.com", "status": "shipped", "total_cents": 4_990, "items": ["kettle", "filter"]},
    "A-1042": {"customer": "tomasz@example.com", "status": "paid", "total_cents": 12_400, "items": ["grinder"]},
    "A-1043": {"customer": "mei@example.com", "status": "open", "total_cents": 890, "items": ["filter"]},
}


class CustomerById(BaseModel):
    """A customer by number."""

    kind: Literal["id"]
    id: Annotated[int, Field(ge=1)]


class CustomerByEmail(BaseModel):
    """A customer by e-mail address."""

    kind: Literal["email"]
    email: Annotated[str, Field(description="The address with which the customer signed up.")]


class Address(BaseModel):
    """An address of an order."""

    street: str
    city: str
    postcode: str | None = None
    country: Annotated[str, Field(min_length=2, max_length=2)] = "DE"


class Item(BaseModel):
    """One line of an order."""

    sku: str
    quantity: Annotated[int, Field(ge=1, le=100)] = 1
    gift: bool = False


@server.tool(annotations=READ_ONLY)
def get_order(order_id: Annotated[str, Field(description="Such as A-1041.")]) -> dict[str, object]:
    """Return an order with its status, its items and its total."""
    if order_id not in _ORDERS:
        msg = f"there is no order {order_id!r}; the newest is A-1043"
        raise ValueError(msg)
    return {"id": order_id, **_ORDERS[order_id]}


@server.tool(annotations=READ_ONLY)
def find_orders(
    customer: CustomerById | CustomerByEmail,
    statuses: list[Literal["open", "paid", "shipped", "returned"]] | None = None,
    limit: Annotated[int, Field(ge=1, le=50, description="At most this many.")] = 10,
) -> list[str]:
    """Find the orders of a customer, newest first."""
    del customer
    return [number for number, order in _ORDERS.items() if statuses is None or order["status"] in statuses][:limit]


@server.tool()
def create_order(
    customer: CustomerById | CustomerByEmail,
    items: Annotated[list[Item], Field(min_length=1)],
    ship_to: Address,
    bill_to: Annotated[Address | None, Field(description="If it differs from ship_to.")] = None,
    note: str | None = None,
) -> str:
    """Create an order. It is open until it is paid."""
    del customer, bill_to, note
    return f"Created A-1044 with {sum(item.quantity for item in items)} pieces for {ship_to.city}."


@server.tool(annotations=ToolAnnotations(destructive_hint=True, idempotent_hint=True))
def refund_order(order_id: str, amount_cents: Annotated[int, Field(ge=1)], reason: str) -> str:
    """Refund an order, as a whole or in part. This cannot be undone."""
    if order_id == "A-1043":
        msg = "A-1043 is not paid, so there is nothing to refund"
        raise ValueError(msg)
    return f"Refunded {amount_cents} cents of {order_id}: {reason}"


@server.tool(annotations=READ_ONLY)
async def export_report(ctx: Context, months: Annotated[int, Field(ge=1, le=24)] = 3, pause_s: float = 0.4) -> str:
    """Write the revenue report, month by month. It takes its time and reports its progress."""
    lines = ["month,orders,revenue_cents"]
    for month in range(months):
        await ctx.info(f"month {month + 1} of {months}", logger_name="shop")  # pyright: ignore[reportDeprecated] - servers still do
        await ctx.report_progress(month + 1, months, f"month {month + 1}")
        await asyncio.sleep(pause_s)
        lines.append(f"2026-{month + 1:02},{120 + 7 * month},{1_204_37 + 10_100 * month}")
    return "\n".join(lines)


_QUESTION = ElicitRequest(
    params=ElicitRequestFormParams(
        message="Which carrier brings the order?\nThe customer asked for a delivery before noon.",
        requested_schema={
            "type": "object",
            "properties": {
                "carrier": {"type": "string", "title": "Carrier", "enum": ["parcel", "courier", "bicycle"], "default": "parcel"},
                "before_noon": {"type": "boolean", "title": "Before noon", "default": True},
                "note": {"type": "string", "title": "Note for the driver", "maxLength": 200},
            },
            "required": ["carrier"],
        },
    )
)


@server.tool()
async def ship_order(ctx: Context, order_id: str) -> CallToolResult | InputRequiredResult:
    """Hand an order to a carrier. Asks which one."""
    answers = ctx.input_responses
    if answers is None:
        return InputRequiredResult(input_requests={"carrier": _QUESTION}, request_state=order_id)
    answer = answers["carrier"]
    if not isinstance(answer, ElicitResult) or answer.action != "accept" or not answer.content:
        return CallToolResult(content=[TextContent(text=f"{order_id} stays here.")], is_error=True)
    return CallToolResult(content=[TextContent(text=f"{order_id} goes by {answer.content['carrier']}.")])


@server.resource("shop://catalogue")
def catalogue() -> str:
    """Return the articles with their prices."""
    return "kettle 4100\nfilter 890\ngrinder 12400"


@server.prompt()
def apology(order_id: str) -> str:
    """Write to a customer whose order is late."""
    return f"Apologize to the customer of {order_id} in three sentences, without excuses."


if __name__ == "__main__":
    server.run("stdio")
