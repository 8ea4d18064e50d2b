"""
The separation of a model's reasoning from its answer, for providers that send both in one text. No I/O.

Most providers have a field for reasoning. Others leave its marks in the text: a block at the start such as `<think>…</think>`, only the
end of one, whose start is in the template of the prompt, or channels. Marks inside an answer that has begun are a part of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto

import orjson

from rookery.content.chat import Delta

_TAG_NAMES = ("think", "thinking", "thought", "thoughts", "reasoning", "reflection", "seed:think")


@dataclass(frozen=True, slots=True)
class _Form:
    """
    A mark at the start of a text.

    Attributes:
        opening: The mark in lower case.
        closing: The mark at the end of the block.
        is_answer: The block is the answer, and not reasoning.
    """

    opening: str
    closing: re.Pattern[str]
    is_answer: bool = False


def _compile(*closings: str) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(closing) for closing in closings), re.IGNORECASE)


_CHANNEL_END = re.compile(r"<\|end\|>|<\|return\|>|(?=<\|start\|>assistant|<\|channel\|>)", re.IGNORECASE)
_CHANNEL_STARTS = ("<|channel|>", "<|start|>assistant<|channel|>")
_FINAL_CHANNELS = ("final<|message|>", "final <|constrain|>json<|message|>", "final json<|message|>")
_FORMS = (
    *(_Form(f"<{name}>", _compile(f"</{name}>")) for name in _TAG_NAMES),
    _Form("[think]", _compile("[/THINK]")),
    _Form("◁think▷", _compile("◁/think▷")),
    _Form("<|start_thinking|>", _compile("<|END_THINKING|>")),
    _Form("<|begin_of_thought|>", _compile("<|end_of_thought|>")),
    _Form("<|channel>thought", _compile("<channel|>")),
    *(_Form(f"{start}{name}<|message|>", _CHANNEL_END) for start in _CHANNEL_STARTS for name in ("analysis", "commentary")),
    *(_Form(f"{start}{name}", _compile("<|return|>", "<|end|>"), is_answer=True) for start in _CHANNEL_STARTS for name in _FINAL_CHANNELS),
    _Form("<|start_response|>", _compile("<|END_RESPONSE|>"), is_answer=True),
    _Form("<|begin_of_solution|>", _compile("<|end_of_solution|>"), is_answer=True),
)
_POSSIBLE_STARTS = frozenset({"", "a", *(form.opening[0] for form in _FORMS)})
_MAX_OPENING_CHARS = max(len(form.opening) for form in _FORMS)
_HELD_CHARS = 24
"""Characters at the end of what has arrived that may be the start of a closing mark."""

_BARE_CHANNELS = _Form("analysis", _compile("assistantfinal"))
"""Channels of which the provider has removed all marks but their names: `analysisWe need…assistantfinal…`."""

_BARE_START = re.compile(r"analysis(?=[A-Z])")

_LONE_CLOSING = re.compile(
    rf"</(?P<tag>{'|'.join(_TAG_NAMES)})>|\[/THINK\]|◁/think▷|<\|END_THINKING\|>|<\|end_of_thought\|>|<channel\|>"
    r"|(?:<\|end\|>)?(?:<\|start\|>assistant)?<\|channel\|>final[ a-z]{0,12}(?:<\|constrain\|>json)?<\|message\|>",
    re.IGNORECASE,
)
_MAX_LONE_CLOSING_CHARS = 80
_LONE_MARKS = ("</", "[/", "◁/", "|>")
_QUOTED_BEFORE, _QUOTED_AFTER = frozenset(" `'\"“‘«("), frozenset(" `'\"”’»),.;:?!")
_JSON_STARTS = frozenset('{["`-0123456789tfn')
"""First characters of a JSON value, or of a code block with one."""


@dataclass(frozen=True, slots=True)
class SplitAnswer:
    """
    An answer and its reasoning.

    Attributes:
        begins_in_reasoning: The text has only the end of a block: its start is in the template of the prompt.
    """

    text: str
    reasoning: str = ""
    begins_in_reasoning: bool = False


class _State(Enum):
    START = auto()
    REASONING = auto()
    UNDECIDED = auto()
    """Text that may be reasoning, as the end of a block may follow."""
    ANSWER = auto()


class ReasoningSplitter:
    """
    Splits an answer that arrives in pieces. Any split of the text gives the same result.

    Args:
        expects_json: The answer is JSON, so that prose at its start may be reasoning.
        begins_in_reasoning: Earlier answers of the model had only the end of a block.
    """

    def __init__(self, *, expects_json: bool = False, begins_in_reasoning: bool = False) -> None:
        self._expects_json = expects_json
        self._begins_in_reasoning = begins_in_reasoning
        self._state = _State.START
        self._pending: str = ""
        self._opening: str = ""
        self._form: _Form | None = None
        """The form of the block that has begun; None outside of one."""
        self._block: list[str] = []
        self._finished: list[str] = []
        self._searched_chars = 0
        self.had_lone_closing = False

    @property
    def reasoning(self) -> str:
        """The reasoning of all finished blocks."""
        return "\n\n".join(block for text in self._finished if (block := text.strip()))

    @property
    def is_in_answer(self) -> bool:
        """True if all text from here is the answer as it is."""
        return self._state is _State.ANSWER and self._form is None

    @property
    def unfinished(self) -> str:
        """The text that has arrived and belongs to no finished block and to no answer yet."""
        return "".join(self._block) + self._pending

    def feed(self, piece: str) -> Delta:
        """Return what *piece* adds to the answer and to the reasoning; both may be empty."""
        if self.is_in_answer:
            return Delta(piece)
        self._pending += piece
        texts, reasoning = list[str](), list[str]()
        is_open = True
        while is_open:
            match self._state:
                case _State.START:
                    is_open = self._begin()
                case _State.REASONING:
                    is_open = self._form is not None and self._read_reasoning(self._form, reasoning)
                case _State.UNDECIDED:
                    is_open = self._search_lone_closing()
                case _State.ANSWER:
                    end = max(0, len(self._pending) - (_HELD_CHARS if self._form is not None else 0))
                    texts.append(self._pending[:end])
                    self._pending, is_open = self._pending[end:], False
        return Delta("".join(texts), "".join(reasoning))

    def finish(self, *, is_cut: bool) -> Delta:
        """
        Return the rest, after the last piece.

        Args:
            is_cut: The model has reached its maximum of tokens, so a block without an end is reasoning. Otherwise it is the answer.
        """
        pending, self._pending = self._pending, ""
        if self._state is _State.REASONING and self._form is not None:
            self._block.append(pending)
            block, self._block = "".join(self._block), []
            if not is_cut:
                return Delta(self._opening + block)
            self._finished.append(block)
            return Delta("", pending)
        if self._state is _State.ANSWER and self._form is not None:
            pending = re.sub(rf"(?:{self._form.closing.pattern})\s*$", "", pending, flags=re.IGNORECASE)
        return Delta(pending.lstrip() if self._finished else pending)

    def _begin(self) -> bool:
        """Decide on the state by the start of the text; return False if more of it is needed."""
        text = self._pending.lstrip()
        if not text:
            return False
        start = text[:_MAX_OPENING_CHARS].lower()
        form = next((form for form in _FORMS if start.startswith(form.opening)), None)
        if form is None and not self._finished and _BARE_START.match(text):
            form = _BARE_CHANNELS
        if form is not None:
            end = len(form.opening)
            self._opening = self._pending[: len(self._pending) - len(text) + end]
            self._form, self._pending = form, text[end:]
            self._state = _State.ANSWER if form.is_answer else _State.REASONING
            return True
        if any(form.opening.startswith(start) for form in _FORMS) or (not self._finished and _BARE_CHANNELS.opening.startswith(text)):
            return False
        self._form = None
        is_undecided = self._begins_in_reasoning or (self._expects_json and text[0] not in _JSON_STARTS)
        self._state = _State.UNDECIDED if is_undecided and not self._finished else _State.ANSWER
        if self._finished:
            self._pending = text
        return True

    def _read_reasoning(self, form: _Form, reasoning: list[str]) -> bool:
        closing = form.closing.search(self._pending)
        end = max(0, len(self._pending) - _HELD_CHARS) if closing is None else closing.start()
        reasoning.append(self._pending[:end])
        self._block.append(self._pending[:end])
        if closing is None:
            self._pending = self._pending[end:]
            return False
        self._pending = self._pending[closing.end() :]
        self._finished.append("".join(self._block))
        self._block = []
        self._state = _State.START
        return True

    def _search_lone_closing(self) -> bool:
        """Search the end of a block in text that may be reasoning; return False if more of it is needed."""
        closing = _LONE_CLOSING.search(self._pending, self._searched_chars)
        if closing is None:
            self._searched_chars = max(0, len(self._pending) - _MAX_LONE_CLOSING_CHARS)
            return False
        self._finished.append(self._pending[: closing.start()])
        self._pending = self._pending[closing.end() :]
        self.had_lone_closing = True
        self._state = _State.START
        return True


def split_reasoning(text: str, *, is_cut: bool = False) -> SplitAnswer:
    """Return the answer in *text* and the reasoning before it; *is_cut* as in `ReasoningSplitter.finish`."""
    if text[:1] not in _POSSIBLE_STARTS and not text[:1].isspace():
        return split_at_lone_closing(text)
    splitter = ReasoningSplitter()
    answer = splitter.feed(text).text + splitter.finish(is_cut=is_cut).text
    return split_at_lone_closing(answer, reasoning=splitter.reasoning)


def split_at_lone_closing(text: str, *, reasoning: str = "") -> SplitAnswer:
    """Return the answer in a text that may have the end of a block whose start it lacks; *reasoning* was before *text*."""
    closing = _find_lone_closing(text)
    if closing is None:
        return SplitAnswer(text, reasoning)
    parts = (reasoning, text[: closing.start()].strip())
    return SplitAnswer(text[closing.end() :].lstrip(), "\n\n".join(part for part in parts if part), begins_in_reasoning=not reasoning)


def _find_lone_closing(text: str) -> re.Match[str] | None:
    if not any(mark in text for mark in _LONE_MARKS):
        return None
    closing = _LONE_CLOSING.search(text)
    if closing is None:
        return None
    before, after = text[: closing.start()], text[closing.end() :]
    tag = closing["tag"]
    if tag is not None and f"<{tag}>".lower() in before.lower():
        return None  # a pair inside the answer
    if before[-1:] in _QUOTED_BEFORE and after[:1] in _QUOTED_AFTER and before:
        return None  # a word of a sentence about the mark
    return None if _is_json(text) else closing


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in {"{", "[", '"'}:
        return False
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True
