"""A loop of an agent for programs that have none: it offers tools to the model, and calls those that the model chooses."""

import json
import urllib.request
from collections.abc import Awaitable, Callable

from surroundings import MODEL_URL, PROMPT


def ask_model(messages: list[dict], tools: list[dict]) -> dict:
    """Return the message of the model."""
    body = {"model": "scripted", "messages": messages, "tools": tools}
    request = urllib.request.Request(  # noqa: S310 - the address is that of the scripted model
        f"{MODEL_URL}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
        return json.load(response)["choices"][0]["message"]


async def run_loop(tools: list[dict], call_tool: Callable[[str, dict], Awaitable[str]], instructions: str = "") -> None:
    """Call tools until the model ends. *tools* have a name, a description and a schema of arguments."""
    declared = [{"type": "function", "function": tool} for tool in tools]
    messages = [{"role": "system", "content": instructions}, {"role": "user", "content": PROMPT}]
    while True:
        message = ask_model(messages, declared)
        messages.append(message)
        if not message.get("tool_calls"):
            print(message["content"])
            return
        for call in message["tool_calls"]:
            name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
            try:
                result = await call_tool(name, arguments)
            except Exception as error:  # noqa: BLE001 - the loop of an agent goes on, whatever a tool raises
                result = f"{type(error).__name__}: {error}"
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
