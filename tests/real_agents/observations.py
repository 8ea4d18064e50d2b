"""The facts of the record, from the requests at Rookery, the model's conversation and the program's output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tests.real_agents.agent_record import ModelFacts, ProtocolFacts
from tests.real_agents.launches import PROMPT
from tests.real_agents.mcp_recorder import SeenRequest
from tests.real_agents.probe_server import ERROR_MARK, STRUCTURED_MARK, TEXT_MARK
from tests.real_agents.program_run import ProgramOutcome
from tests.real_agents.scripted_model import Conversation, find_tool

MEMORY = "The heron nests on the roof of the mill."
"""The memory that the script stores and finds again."""

WORKS = "works"

WAITS = "the program waits until its time is over"
NOT_REACHED = "not reached"

_MAX_TEXT = 800
_LINE = re.compile(r"line (\d{7}) of it")
_MENTIONS_FILE = re.compile(r"saved|written|stored|file", re.IGNORECASE)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z?")
_PLACES = ((re.compile(r"/[^\s\"']*/real-agents-\w+"), "HOME"), (re.compile(r"127\.0\.0\.1:\d+"), "HOST"))
_VARIABLE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TELLING = re.compile(r"401|403|unauthor|authenticat|credential|unknown|rejected|refused|fail|error|could ?n.t", re.IGNORECASE)
_FRAME = re.compile(r"^[\s|+-]+")
_STACK = re.compile(r'(at |For more information |File "|\^|~|Traceback|raise |await |return |self\.|async with|-)')


def read_protocol(requests: Sequence[SeenRequest]) -> ProtocolFacts:
    """Return the facts of the requests of a run without faults."""
    places = [place for place, one in enumerate(requests) if one.rpc == "tools/call"]
    calls = [requests[place] for place in places]
    connect = [one.label for one in requests[: places[0]]] if places else [one.label for one in requests]
    has_session = any(one.rpc == "initialize" and one.status == 200 for one in requests)
    first = requests[0]
    version = next((one.version for one in [*calls, *reversed(requests)] if one.version), "")
    return ProtocolFacts(
        client=next((one.client for one in requests if one.client), ""),
        first=" ".join(filter(None, (first.label, first.version))),
        version=version,
        connect=connect,
        per_call=round((places[-1] - places[0]) / (len(places) - 1), 1) if len(places) > 1 else float(len(places)),
        ends_session=any(one.method == "DELETE" for one in requests) if has_session else None,
        meta=sorted({name for one in calls for name in one.meta if not name.startswith("io.modelcontextprotocol/")}),
        nulls=sorted({name for one in calls for name, value in one.arguments.items() if value is None}),
    )


def read_model(conversation: Conversation, listed: Sequence[str], instructions: str) -> ModelFacts:
    """Return the facts of what the model was given in a run without faults."""
    first = conversation.first
    if first is None:
        return ModelFacts(tools=0, listed=len(listed), tool_characters=0, missing=sorted({step.tool for step in conversation.steps}))
    results = conversation.results
    return ModelFacts(
        tools=sum(find_tool(name, first) is not None for name in listed),
        listed=len(listed),
        tool_characters=first.tool_characters,
        searches=conversation.searches,
        names=conversation.names,
        missing=sorted(set(conversation.missing)),
        instructions=describe_instructions(instructions, conversation),
        halves=describe_halves(results.get("halves", ""), TEXT_MARK),
        error=describe_halves(results.get("failing", ""), ERROR_MARK),
        recall_characters=len(results.get("recall", "")),
        lengths={
            label.partition(" ")[2]: describe_length(text, int(label.split()[1])) for label, text in results.items() if "long " in label
        },
        broken={label: shorten(results.get(label, "")) for label in ("remember", "recall") if not is_answer(label, results.get(label, ""))},
    )


def is_answer(label: str, text: str) -> bool:
    """Return whether the result of a step is what Rookery returned: a memory that is found, or one that is stored."""
    return "heron nests" in text if label != "remember" else bool(_VARIABLE.search(text))


def describe_answer(conversation: Conversation, label: str, outcome: ProgramOutcome) -> str:
    """Return "works" for a recall that found the memory, else the text that the model got, or why it got none."""
    text = conversation.results.get(label)
    if text is not None:
        return WORKS if is_answer("recall", text) else shorten(text) or "an empty text"
    if conversation.pending == label:
        return WAITS if outcome.code is None else f"the program ends with {outcome.code}: {find_reason(outcome.output)}"
    return "the tool is no longer offered" if conversation.missing else NOT_REACHED


def describe_halves(text: str, text_mark: str) -> str:
    """Return which half of a result is in a text."""
    halves = [name for name, mark in (("text", text_mark), ("structured", STRUCTURED_MARK)) if mark in text]
    return "both" if len(halves) == 2 else halves[0] if halves else "neither"


def describe_length(text: str, characters: int) -> str:
    """Return how much of a text of numbered lines is left, and which part."""
    last = characters // 20 - 1
    numbers = [int(number) for number in _LINE.findall(text)]
    head = next((count for count, number in enumerate(numbers) if number != count), len(numbers))
    if head == last + 1:
        return "whole"
    tail = next((count for count, number in enumerate(reversed(numbers)) if number != last - count), len(numbers))
    parts = [f"{word} {count * 20:,}" for word, count in (("first", head), ("last", tail)) if count]
    rest = ", the rest in a file" if _MENTIONS_FILE.search(_LINE.sub("", text)) else ""
    return f"{' and '.join(parts) or 'nothing'}{rest}"


def describe_instructions(instructions: str, conversation: Conversation) -> str:
    """Return whether the model gets the instructions of the server: "whole", "cut" or "none"."""
    words = re.findall(r"\w+", instructions)
    given = " ".join(re.findall(r"\w+", " ".join(one.text for one in (conversation.first, conversation.last) if one is not None)))
    if " ".join(words[:12]) not in given:
        return "none"
    return "whole" if " ".join(words[-12:]) in given else "cut"


def list_other_requests(requests: Iterable[SeenRequest]) -> list[str]:
    """Return the requests that are not of `/mcp`, each once, with the status of the answer."""
    return list(dict.fromkeys(f"{one.method} {one.path} {one.status}" for one in requests if not one.path.startswith("/mcp")))


def find_reason(output: str) -> str:
    """Return the line of a program's output that says why it has no tools."""
    lines = [_FRAME.sub("", line).strip() for line in _ESCAPES.sub("", output).splitlines()]
    lines = [line for line in lines if line and not _STACK.match(line)]
    telling = [line for line in lines if _TELLING.search(line)]
    named = [line for line in telling if "401" in line or "nauthorized" in line or "key" in line.lower()]
    return shorten((named or telling or ["nothing of it"])[-1])


def find_remark(conversation: Conversation) -> str:
    """Return the line that tells the model of the lost connection, or an empty text."""
    if conversation.last is None:
        return ""
    parts = re.split(r'["\n]', conversation.last.text)
    found = [part for part in parts if "rookery" in part.lower() and PROMPT not in part and _TELLING.search(part)]
    return shorten(found[-1]) if found else ""


def shorten(text: str) -> str:
    """Return a text without what differs in each run, in a line."""
    text = _TIME.sub("TIME", _VARIABLE.sub("ID", _ESCAPES.sub("", text)))
    for pattern, name in _PLACES:
        text = pattern.sub(name, text)
    line = " ".join(text.split())
    return line if len(line) <= _MAX_TEXT else f"{line[:_MAX_TEXT]}…"
