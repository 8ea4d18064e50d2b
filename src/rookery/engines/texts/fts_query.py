"""
From words and filters as data to one FTS5 expression. Pure.

Who may see a document is part of the full-text index: each document carries the hashes of its *spaces*, and a query
names those that it may see. That is 4 to 16 times faster than joining to a table (notes on engines, section 3); and
as hashes are hexadecimal, no name can be taken for syntax, and 'Acme' is not 'acme' although FTS5 folds case.
`rookery.memory.visibility` is the rule, and this module is tested against it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise, product

from rookery.memory.models import AccessFilter, IndexDocument, MemoryScope, TextQuery

MAX_SPACES = 64
"""Of more alternatives than these (a key with long lists of orgs and projects), names are compared in the table instead."""

_MAX_WORDS = 256
_MAX_PAIRED_WORDS = 32

_ANY_NAME = ("any", "")
_NO_NAME = ("none", "")

ORG_OPTIONAL_SCOPES = frozenset({MemoryScope.AGENT, MemoryScope.SESSION})
"""The scopes in which a memory without an org is seen by a query of one; `PROJECT_OPTIONAL_SCOPES` for projects."""

PROJECT_OPTIONAL_SCOPES = ORG_OPTIONAL_SCOPES | {MemoryScope.SHARED}

_STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such "
    "that the their then there these they this to was will with".split()
)
"""English analysis (spec 2.6) as Lucene and so Elasticsearch has it; a word in half of all documents tells nothing, slowly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FtsQuery:
    """
    A query for FTS5, in parts.

    Attributes:
        required_tokens: Tokens, of each group of which a document must have one: what *conditions* say but for phrases.
        conditions: Expressions of which all must hold: who may see, type, tags, phrases.
        words: Of which one must be found; with phrases they only add to the score.
        pairs: Words side by side, which count like words.
        excluded: What must not be found; may be empty.
        visible_expression: The first of *conditions*, which every document that may be seen has.
        is_unfiltered: Only the workspace and whose memories they are restrict it.
        is_approximate: Common words may be left out, and which of equals at the end are in may be any.
        is_too_wide: Org and project are yet to be compared, as there are more than `MAX_SPACES`.
    """

    required_tokens: tuple[tuple[str, ...], ...]
    conditions: tuple[str, ...]
    words: tuple[str, ...]
    pairs: tuple[str, ...]
    excluded: str
    visible_expression: str
    has_phrases: bool
    is_unfiltered: bool
    is_approximate: bool
    is_too_wide: bool

    @property
    def terms(self) -> tuple[str, ...]:
        """Words, then pairs."""
        return (*self.words, *self.pairs)

    def to_expression(self, terms: Sequence[str], *, is_unfiltered: bool = False) -> str:
        """
        Return the right side of MATCH that looks for *terms*.

        Args:
            is_unfiltered: Leave to the caller to tell who may see what is found; only for a question that is open.
        """
        sides = list(() if is_unfiltered else self.conditions)
        if terms:
            found = any_term_expression(terms)
            # With phrases the words only add to the score; what every document here has makes them optional.
            sides.append(f"({found} OR {self.visible_expression})" if self.has_phrases else found)
        match = " AND ".join(sides)
        return f"({match}) NOT content : {self.excluded}" if self.excluded else match


def index_tokens(document: IndexDocument) -> str:
    """Return what is indexed of a document beside its text: its spaces, type and tags."""
    owner = _owner_parts(document.memory_scope, document.agent_id, document.session_id)
    names = product((_ANY_NAME, _name_part(document.org)), (_ANY_NAME, _name_part(document.project)))
    return " ".join(
        (
            *(_hash_token(document.workspace_id, "space", *owner, *org, *project) for org, project in names),
            _hash_token(document.workspace_id, "type", document.type),
            *(_hash_token(document.workspace_id, "tag", tag) for tag in sorted(set(document.tags))),
            *(_hash_token(document.workspace_id, "label", label) for label in sorted(document.labels)),
        )
    )


def build_query(query: TextQuery, access_filter: AccessFilter) -> FtsQuery | None:
    """Return the query for *query*, or None if nothing can be found."""
    phrases = [_quote(phrase) for phrase in query.phrases]
    telling = _remove_stop_words(query.any_of, has_phrases=bool(phrases))
    owners = tuple(_iter_owners(access_filter))
    spaces = [space for owner in owners for space in _iter_spaces(owner, access_filter)]
    if not spaces or not (phrases or telling):
        return None
    is_wide = len(spaces) > MAX_SPACES
    if is_wide:
        spaces = [(*owner[1], *_ANY_NAME, *_ANY_NAME) for owner in owners]
    needed = [tuple(_hash_token(access_filter.workspace_id, "space", *space) for space in spaces)]
    if access_filter.type is not None:
        needed.append((_hash_token(access_filter.workspace_id, "type", access_filter.type),))
    needed += [(_hash_token(access_filter.workspace_id, "tag", tag),) for tag in sorted(access_filter.tags)]
    needed += [(_hash_token(access_filter.workspace_id, "label", label),) for label in sorted(access_filter.labels)]
    sides = [_token_expression(tokens) for tokens in needed]
    seen = sides[0]
    sides += [f"content : {phrase}" for phrase in phrases]
    return FtsQuery(
        required_tokens=tuple(needed),
        conditions=tuple(sides),
        words=tuple(telling),
        pairs=tuple(_pairs(telling)),
        excluded=_join_or([_quote(word) for word in query.none_of]),
        visible_expression=seen,
        has_phrases=bool(phrases),
        is_unfiltered=sides == [seen]
        and access_filter.scopes is None
        and {access_filter.org, access_filter.project, access_filter.orgs, access_filter.projects} == {None},
        is_approximate=query.is_question and not phrases and not query.none_of,
        is_too_wide=is_wide,
    )


def any_term_expression(terms: Iterable[str]) -> str:
    """Return the expression that finds any of *terms*."""
    return f"{{content context}} : {_join_or([_quote(term) for term in terms])}"


def _remove_stop_words(words: Sequence[str], *, has_phrases: bool) -> list[str]:
    """Return the distinct *query* without stop words, unless there is nothing else to go by."""
    distinct = list(dict.fromkeys(words))
    telling = [word for word in distinct if word.casefold() not in _STOP_WORDS]
    return (telling if telling or has_phrases else distinct)[:_MAX_WORDS]


def _pairs(words: Sequence[str]) -> Iterator[str]:
    """
    Yield each two words that follow one another: found side by side they say more than apart.

    Measured on the development half of LoCoMo: 0.5 to 2 points of MRR by session; nothing lost elsewhere.
    """
    return (f"{first} {second}" for first, second in pairwise(words[:_MAX_PAIRED_WORDS]))


_SpaceParts = tuple[str, ...]


def _owner_parts(scope: MemoryScope, agent_id: str | None, session_id: str | None) -> _SpaceParts:
    match scope:
        case MemoryScope.AGENT:
            return (scope, *_name_part(agent_id))
        case MemoryScope.SESSION:
            return (scope, *_name_part(session_id))
        case MemoryScope.PROJECT | MemoryScope.SHARED:
            return (scope, *_ANY_NAME)


def _iter_owners(access_filter: AccessFilter) -> Iterator[tuple[MemoryScope, _SpaceParts]]:
    """Yield whose memories *access_filter* may see, scope by scope."""
    for scope in MemoryScope:
        if access_filter.scopes is not None and scope not in access_filter.scopes:
            continue
        if scope is MemoryScope.AGENT and access_filter.agent_id is None:
            continue
        if scope is MemoryScope.SESSION and access_filter.session_id is None:
            continue
        yield scope, _owner_parts(scope, access_filter.agent_id, access_filter.session_id)


def _iter_spaces(owner: tuple[MemoryScope, _SpaceParts], access_filter: AccessFilter) -> Iterator[_SpaceParts]:
    scope, parts = owner
    orgs = _allowed_names(access_filter.org, access_filter.orgs, includes_none=scope in ORG_OPTIONAL_SCOPES)
    projects = _allowed_names(access_filter.project, access_filter.projects, includes_none=scope in PROJECT_OPTIONAL_SCOPES)
    return ((*parts, *org, *project) for org, project in product(orgs, projects))


def _allowed_names(name: str | None, allowed: Collection[str] | None, *, includes_none: bool) -> list[tuple[str, str]]:
    """Return what an org or project may be: one of the names that both filters let through, or none if *includes_none*."""
    if allowed is None:
        if name is None:
            return [_ANY_NAME]
        names: Iterable[str] = (name,)
    else:
        names = sorted(allowed) if name is None else {name}.intersection(allowed)
    return [_name_part(name) for name in names] + ([_NO_NAME] if includes_none else [])


def _name_part(name: str | None) -> tuple[str, str]:
    return _NO_NAME if name is None else ("is", name)


@lru_cache(maxsize=8192)
def _hash_token(workspace_id: int, kind: str, *parts: str) -> str:
    """Return one word of the index; it ends in a digit, which the stemmer leaves alone."""
    text = repr((workspace_id, kind, *(str(part) for part in parts)))
    return blake2b(text.encode(), digest_size=16).hexdigest() + "0"


def _token_expression(alternatives: Iterable[str]) -> str:
    return f"tokens : {_join_or([_quote(token) for token in alternatives])}"


def _join_or(strings: Sequence[str]) -> str:
    return f"({' OR '.join(strings)})" if strings else ""


def _quote(text: str) -> str:
    """
    Return *text* as an FTS5 string: nothing but a quotation mark means anything in it.

    NUL would end the expression for SQLite, which reads it as C does, and a lone surrogate has no UTF-8.
    """
    plain = text.replace("\0", " ").encode(errors="replace").decode().replace('"', '""')
    return f'"{plain}"'
