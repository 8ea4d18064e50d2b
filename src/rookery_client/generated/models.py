"""
Models of responses.

Written by `make client` from the declarations of the operations. Change those, not this file.
"""

# fmt: off

from __future__ import annotations

from datetime import date, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Model(BaseModel):
    """A part of a response. Fields that are unknown here are kept (`model_extra`), so that a newer server may send more."""

    model_config = ConfigDict(extra="allow", populate_by_name=True, defer_build=True, protected_namespaces=())


class AddedServer(Model):
    """A server that the workspace added. Of its secrets, only the names are included."""

    id: str
    workspace_id: int
    name: str
    url: str | None = None
    type: str
    headers: dict[str, str] | None = None
    command: str | None = None
    args: list[str] | None = None
    env: dict[str, str] | None = None
    cwd: str | None = None
    secrets: list[str]
    tagline: str
    description: str
    icon: str | None = None
    status: Literal["available", "beta", "deprecated"] | str
    use_when: str | None = None
    related_servers: list[str]
    enabled: bool
    sandbox: bool
    isolation: str
    replicas: int
    lifecycle: str
    idle_s: float | None = None
    timeout_s: float
    max_concurrency: int
    forward_headers: list[str]
    forward_meta: list[str]
    tools: dict[str, object] | None = None
    auth: object | None = None
    roots: object | None = None
    start_timeout_s: float | None = None
    protocol: Literal["auto", "handshake", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] | str
    deprecated_at: datetime | None = None
    sunset_at: datetime | None = None
    health: Literal["online", "offline", "degraded", "needs_login", "unknown"] | str
    last_error: str | None = None
    tool_count: int
    resource_count: int
    created_at: datetime
    updated_at: datetime


class Addresses(Model):
    """The IP list of an agent key."""

    ip_restriction: bool
    ips: list[str]


class AgentsBoot(Model):
    """The context that a new session starts with."""

    plan: Plan | None = None
    """The plan without its phases, or null."""
    phase: Phase | None = None
    """The current phase without its tasks, or null."""
    tasks: list[Task]
    """Tasks that can be claimed now, best first; at most ten."""
    handoff: Offered | None = None
    """The hand-off of the previous session. It is offered again until a session takes it."""
    checkpoint: LastCheckpoint | None = None
    memories: dict[str, object] | None
    """As in GET /v1/brain/agent/{id}/boot; null without brain:read."""


class AgentsVersion(Model):
    """A stored version of a template."""

    version: str
    created_at: datetime | None
    in_use: bool


class AiDetection(Model):
    """AI detection."""

    score: float | None
    band: Literal["60-80", "80-120", "120-200", "200+"] | str | None = None
    """The length band, whose thresholds apply."""
    segments: list[Segment]
    signals: list[Signal]


class Analytics(Model):
    """The figures of all matching calls, and of each group."""

    calls: int
    errors: int
    error_rate: float
    cached: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    last_called_at: datetime | None
    last_error: LastError | None = None
    since: datetime | None
    until: datetime | None
    server: str | None
    tool: str | None
    by: str
    group_count: int
    """The number of groups, including those beyond the limit."""
    data: list[FigureGroup]
    """The groups with the most calls first. Days are in chronological order; the limit keeps the latest ones."""


class Attempt(Model):
    """One attempt of a delivery."""

    number: int
    started_at: datetime
    ended_at: datetime | None
    outcome: Literal["success", "failure", "interrupted"] | str | None = None
    """
    Null: running. interrupted: the outcome is unknown; the delivery may have arrived. It does not count as one of the four
    attempts.
    """
    status: int | None
    """The HTTP status; null: no response."""
    error: str | None
    response: str | None
    """The first 10,000 characters of the response."""
    duration_ms: float | None


class Audience(Model):
    """The receivers of a campaign."""

    all: bool
    tags: list[str]
    subscribers: list[str]
    """Ids or external ids."""


class AuditActor(Model):
    """The actor of a change."""

    kind: str
    id: str | None
    name: str
    address: str | None
    request_id: str | None


class AuditEntry(Model):
    """One change; *hash* covers this entry and *previous*, the hash of the entry before it."""

    workspace_id: int
    seq: int
    at: datetime
    actor: AuditActor
    action: str
    subject: AuditSubject
    before: dict[str, object] | None
    after: dict[str, object] | None
    previous: str
    hash: str


class AuditSubject(Model):
    """The changed resource."""

    kind: str
    id: str
    name: str
    environment: Literal["live", "test"] | str | None = None


class Author(Model):
    """The author of a memory or of a change."""

    kind: Literal["api", "agent", "operator", "system"] | str
    """`api` or `agent`: a key of this kind; `operator`: the command line; `system`: a timer."""
    key_id: str | None
    name: str
    """The name that the key had then, or the operator's login."""
    agent_id: str | None
    """The agent of the key, or the agent that the request named."""
    session_id: str | None


class Batch(Model):
    """The results of a batch, in its order."""

    results: list[BatchItem]


class BatchCounts(Model):
    """The number of generations by status."""

    queued: int
    running: int
    succeeded: int
    failed: int
    cancelled: int


class BatchItem(Model):
    """The result of one memory of a batch: *memory* or *error*."""

    index: int
    status: int
    memory: Remember | None = None
    error: dict[str, object] | None


class Blocked(Model):
    """A blocked phase or task, and the ids of the phases and tasks that block it."""

    id: str
    by: list[str]


class Budget(Model):
    """The daily and the monthly budget of the workspace or of a key, and what is used of them. All amounts are in `currency`."""

    scope: Literal["workspace", "key"] | str
    key_id: str | None
    key_name: str | None
    """The name of the key; null for the workspace, or if the key was deleted."""
    currency: str
    """The currency of the amounts, a code of ISO 4217."""
    source: Literal["setting", "override"] | str
    """setting: the operator's default. override: set for this one."""
    daily: float | None
    """The limit per day; null: no limit."""
    spent: float
    """The cost of today's finished calls."""
    reserved: float
    """The highest possible cost of the calls in progress."""
    left: float | None
    """The rest that new calls can use; null: no limit."""
    resets_at: datetime
    """The next midnight in UTC."""
    monthly: float | None
    """The limit per calendar month; null: no limit."""
    month: MonthBudget


class Call(Model):
    """One call of a key."""

    at: datetime
    method: str
    route: str
    status: int
    duration_ms: float
    address: str | None = None
    """Needs audit:read; omitted without it."""
    request_id: str
    is_upstream_error: bool
    """The status is that of an error of a tool, its server or a language model, which Rookery passed on."""


class CallShown(Model):
    """The record of one call: sizes of arguments and result, and the arguments themselves if the operator stores them."""

    id: str
    server: str
    tool: str
    key_id: str
    key_kind: str
    agent_id: str | None
    session_id: str | None
    success: bool
    code: str | None
    error: str | None
    cached: bool
    duration_ms: int
    duration_exact_ms: float
    upstream_ms: float | None = None
    """The part of the duration that the call waited for its tool server; null if nothing was sent to it."""
    arguments_bytes: int
    result_bytes: int
    arguments: str | None
    request_id: str
    called_at: datetime


class Campaign(Model):
    """A campaign with its statistics."""

    id: str
    workspace_id: int
    name: str
    """The name of the campaign, which is not sent."""
    title: str
    """
    The title of the message. Placeholders such as {{ first_name }} are variables of the campaign or attributes of the subscriber.
    """
    body: str
    """
    The text of the message. Placeholders such as {{ first_name }} are variables of the campaign or attributes of the subscriber.
    """
    url: str | None
    """The page that the message opens. Values of placeholders are percent-encoded."""
    channels: list[str] | None
    audience: Audience
    variables: dict[str, str | int | float | bool]
    """Values of placeholders. An attribute of the subscriber with the same name takes precedence."""
    rate_per_second: float | None
    """Messages per second, over all processes; null: no limit."""
    ttl_s: int
    """Seconds after the start; deliveries that are not sent by then fail."""
    schedule: Schedule | None = None
    status: Literal["draft", "scheduled", "sending", "paused", "sent", "cancelled", "failed", "missed"] | str
    status_reason: str | None
    """The reason why it was paused, missed or failed, why some deliveries failed, or why they wait."""
    resume_at: datetime | None
    """Paused by a fault that may pass: when one message is tried. If it is accepted, the campaign resumes."""
    test_of: str | None
    """The campaign that this one tests."""
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    waits: list[CampaignWait]
    """The hosts for which deliveries wait, those with the most deliveries first."""
    statistics: Statistics


class CampaignPreview(Model):
    """The audience of a campaign at this moment, and the message for one of its members."""

    subscribers: int
    """Members with a channel of the campaign's types."""
    deliveries: int
    skipped: int
    """Deliveries whose channel is not active."""
    by_channel: dict[str, int]
    unknown_subscribers: list[str]
    """Entries of `audience.subscribers` that name no subscriber."""
    missing_variables: list[MissingVariable]
    """These prevent a send."""
    subscriber: str | None
    """The external id of the subscriber of `message`."""
    message: RenderedMessage | None = None
    warnings: list[str]
    """The channels that cut `message`, because it is too long for them."""


class CampaignWait(Model):
    """A host that takes no messages for now. At `until` one message is tried, and the others follow when it is accepted."""

    channel: Literal["webhook", "email", "ntfy", "webpush", "apprise"] | str
    host: str
    """Empty: the mail server."""
    until: datetime
    reason: str | None
    """The latest answer."""
    deliveries: int
    """Deliveries of this campaign that wait."""


class Check(Model):
    """The result of a connection check."""

    id: str
    ok: bool
    error: str | None = None
    advice: str | None = None
    warnings: list[str]
    sharing: str
    """The callers that share a session with it, and what they share, in a sentence."""
    concurrency: str
    """The number of calls that run at once in one session, in a sentence."""
    software: str | None = None
    era: str | None = None
    tools: list[str]
    """The names of the tools that callers see."""
    hidden_tools: list[str]
    """The names of its tools that Rookery cannot run."""
    took_ms: int
    stderr: list[str]
    """The first and the last lines that its process wrote to standard error."""


class Checkpoint(Model):
    """A note on the progress of a phase."""

    id: str
    note: str
    context: dict[str, object]
    agent_id: str | None
    created_at: datetime


class Claim(Model):
    """The lease of a task."""

    holder: Holder
    claimed_at: datetime
    expires_at: datetime


class ClientSetup(Model):
    """The set-up of one client, ready to paste."""

    client: str
    name: str
    file: str | None
    language: str
    text: str
    note: str
    command: str | None = None


class Confidence(Model):
    """A memory's id and confidence."""

    id: str
    confidence: float


class Connect(Model):
    """Set-up instructions for MCP clients."""

    name: str
    url: str
    search_url: str
    """The URL of search mode, where three tools find and call all others. For catalogues too large for a context window."""
    api: str
    server: str | None
    key_variable: str
    key_commands: str
    """Commands that create a key and store it in the environment variable."""
    clients: list[ClientSetup]


class ContentUsage(Model):
    """The usage of one model by one key on one day."""

    day: date
    key_id: str | None
    key_name: str | None
    """The name of the key, also if it was deleted."""
    model: str
    requests: int
    """Generations and judge calls that ended."""
    succeeded: int
    failed: int
    cancelled: int
    input_tokens: int
    output_tokens: int
    """The billed tokens of answers and of reasoning."""
    reasoning_tokens: int
    """The part of the output tokens that is reasoning, as far as providers report it."""
    cached_tokens: int
    """The part of the input tokens from caches of providers, as far as they report it."""
    cost: float
    currency: str
    """The currency of the cost."""


class Context(Model):
    """The memories stored just before and after a recalled one in its session, in the order of time."""

    before: list[Neighbour]
    after: list[Neighbour]


class Count(Model):
    """A name and the number of memories that have it."""

    name: str
    count: int


class Criterion(Model):
    """An acceptance criterion."""

    text: str
    checked: bool


class CurrentPhase(Model):
    """The current phase of a plan."""

    id: str
    position: int
    name: str
    status: Literal["pending", "in_progress", "completed", "skipped", "on_hold"] | str


class Deletion(Model):
    """The result of deleting a workspace, or of a dry run."""

    id: int
    """Same as `workspace_id`, as every resource has an `id`."""
    workspace_id: int
    name: str
    created_at: datetime
    keys: int
    calls: int
    rows: int | None
    deleted: bool


class Doctor(Model):
    """The findings of all checks."""

    healthy: bool
    """True if no finding is a problem."""
    findings: list[DoctorFinding]


class DoctorFinding(Model):
    """The result of one check."""

    about: str
    """The part that was checked, such as `disk`."""
    grade: Literal["ok", "warning", "problem"] | str
    """`problem`: something cannot work. `warning`: something deserves attention."""
    says: str
    """The finding, for people."""
    advice: str | None
    """The next step, with a command or a setting; null if all is well."""


class DroppedMemory(Model):
    """A memory that a recall did not return, though the key may read it."""

    id: str
    excerpt: str
    """The start of its content."""
    type: str
    project: str | None
    memory_scope: str
    rule: Literal["top_k", "similar", "min_relevance", "max_tokens", "filter"] | str
    """
    `top_k`: better ones took all places. `similar`: so they did, and a better one differs by numbers and dates only.
    `min_relevance`: it is less relevant. `max_tokens`: it did not fit. `filter`: *filters* reject it.
    """
    filters: list[str]
    score: float
    """The value that would rank it; for the rule `filter`, without the filters."""
    relevance: float
    similarity: float | None
    text_score: float | None


class Edge(Model):
    """A dependency: `source` must be done before `target`."""

    source: str
    target: str


class Event(Model):
    """One change of a plan."""

    seq: int
    type: str
    at: datetime
    key_id: str | None
    agent_id: str | None
    session_id: str | None
    phase_id: str | None
    task_id: str | None
    data: dict[str, object]


class EventType(Model):
    """A type of event."""

    name: str
    description: str
    data: str
    """The content of `data`."""
    resource: str | None
    """The GET route whose response `data` equals."""
    in_wildcard: bool
    """True if `*` includes it."""


class Explanation(Model):
    """The explanation of a memory's rank."""

    place: int
    relevance: float
    ranks: Ranks
    similarity: float | None
    text_score: float | None
    neighbour: float | None
    matched_keywords: list[str]
    keyword_share: float
    scope: str
    decay: float
    effective_confidence: float
    parts: ScoreParts
    is_repeated: bool | None = None
    """True if a better memory differs from it by numbers and dates only, which costs it rank."""
    highlight: str
    """A part of its content as HTML, with words of the question in `mark`."""


class Feedback(Model):
    """The result of feedback: the ids whose confidence changed, and the confidence of every named memory."""

    recall_id: str
    used: list[str]
    ignored: list[str]
    memories: list[Confidence]


class FigureGroup(Model):
    """The figures of one group. Only the fields that identify the group are present."""

    calls: int
    errors: int
    error_rate: float
    cached: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    last_called_at: datetime | None
    last_error: LastError | None = None
    server: str | None = None
    tool: str | None = None
    key_id: str | None = None
    key_kind: str | None = None
    session_id: str | None = None
    day: date | None = None


class FoundTools(Model):
    """The matching tools, best first: each as its server lists it, with `server` and `score` added."""

    query: str
    tools: list[dict[str, object]]
    count: int
    took_ms: int


class GenerationBatch(Model):
    """A batch."""

    id: str
    status: Literal["running", "finished"] | str
    """finished: every generation has ended."""
    total: int
    counts: BatchCounts
    usage: GenerationTokens
    cost: float
    """The cost so far in `currency`."""
    currency: str | None
    """The currency of the cost; null before a call has run."""
    metadata: dict[str, object]
    key_id: str | None
    created_at: datetime
    ended_at: datetime | None


class GenerationFailure(Model):
    """The reason for a status of failed or cancelled."""

    code: str
    """A code, such as provider_unavailable, budget_exhausted or client_disconnected."""
    message: str


class GenerationOutput(Model):
    """The answer."""

    text: str | None
    """The answer as text. With a schema: its JSON."""
    json_: object | None = Field(default=None, alias="json")
    """The answer as a JSON value, if the request has a schema."""
    reasoning: str | None = None
    """The text that the model wrote before its answer, if it shows it, at most 100,000 characters."""


class GenerationTemplate(Model):
    """The template and its version."""

    slug: str
    version: int


class GenerationTokens(Model):
    """The tokens that all calls of the generation used."""

    input_tokens: int
    output_tokens: int
    """The billed tokens of the answer and of the reasoning."""
    reasoning_tokens: int | None = None
    """The part of the output tokens that is reasoning, if the provider reports it."""
    cached_tokens: int | None = None
    """The part of the input tokens that the provider had in its cache, if it reports it."""
    is_estimated: bool
    """The provider did not report all of it, so it was computed from the texts."""


class Graph(Model):
    """The dependency graph of a plan."""

    plan_id: str
    nodes: list[Node]
    edges: list[Edge]
    ready: list[str]
    blocked: list[Blocked]


class Heartbeat(Model):
    """The status of an open session."""

    id: str
    status: Literal["active", "paused", "completed", "failed", "handed_off", "abandoned"] | str
    last_activity_at: datetime


class HiddenTool(Model):
    """A tool that the server offers but Rookery does not list."""

    name: str
    reason: str


class Holder(Model):
    """The holder of a lease."""

    agent_id: str | None
    session_id: str | None
    key_id: str


class Hook(Model):
    """The answer in the schema of the client. An empty object changes nothing. Cursor gets the text as `additional_context`."""

    hook_specific_output: HookSpecificOutput | None = Field(default=None, alias="hookSpecificOutput")
    additional_context: str | None = Field(default=None, alias="additionalContext")
    """The text, for Copilot CLI."""


class HookSpecificOutput(Model):
    """The part of an answer that adds a text to the conversation, for all clients but Cursor and Copilot CLI."""

    hook_event_name: str = Field(alias="hookEventName")
    """The client's name of the event."""
    additional_context: str = Field(alias="additionalContext")
    """The text."""


class ImportError(Model):
    """A bad line of an import."""

    line: int
    """The number of the line in the file, from 1."""
    errors: dict[str, list[str]]


class ImportReport(Model):
    """The result of an import."""

    lines: int
    """Lines with a subscriber."""
    created: int
    updated: int
    unchanged: int
    failed: int
    errors: list[ImportError]
    """The first 100 bad lines."""


class Judge(Model):
    """The opinion of a language model, beside the local score."""

    model: str
    score: float
    label: Literal["none", "mild", "marked", "strong"] | str
    rationale: str
    agrees: bool | None
    """True if its label equals the local one."""


class LastCheckpoint(Model):
    """The last checkpoint of all sessions on the plan, or of the resumed session."""

    session_id: str
    seq: int
    type: Literal["note", "action", "decision", "checkpoint", "question", "answer", "artifact", "error"] | str
    message: str
    data: dict[str, object]
    state: dict[str, object] | None
    task_id: str | None
    tokens: Tokens
    created_at: datetime
    agent_id: str | None
    age_s: float
    """Seconds since it was created."""


class LastError(Model):
    """The latest failure of a group of calls."""

    code: str
    message: str | None
    tool: str
    server: str
    at: datetime
    request_id: str


class Liveness(Model):
    """The state of the process."""

    status: Literal["ok"] | str


class LoggedMemory(Model):
    """A memory that a recall returned: its place, and the feedback on it that counted."""

    id: str
    rank: int
    feedback: Literal["used", "ignored"] | str | None = None


class LoggedRecall(Model):
    """An entry of the log of recalls."""

    id: str
    created_at: datetime
    key_id: str
    key_name: str
    """The name that the key had then."""
    agent_id: str | None
    """The agent whose own memories the recall could return: the one of the request, or that of the key."""
    session_id: str | None
    org: str | None
    project: str | None
    query: str
    mode: Literal["semantic", "keyword", "hybrid"] | str
    top_k: int
    keywords: list[str]
    min_relevance: float | None
    max_tokens: int | None
    filters: RecallFilters
    """The filters of the request."""
    is_confident: bool
    memories: list[LoggedMemory]
    """The returned memories, best first. Those that were deleted since are among them."""


class Login(Model):
    """The state of a login."""

    server: str
    logged_in: bool
    """There is a login, of this workspace or for all. The server's health shows whether it is still valid."""


class LoginBegun(Model):
    """The consent URL to open in a browser, and its expiry."""

    server: str
    authorization_url: str
    expires_at: datetime


class MapCluster(Model):
    """Points that lie together: their centre, their number, and the words that set them apart."""

    x: int
    y: int
    count: int
    words: list[str]


class MemoryBoot(Model):
    """The memories that an agent starts with."""

    agent: list[Memory]
    shared: list[Memory]
    project: list[Memory]
    session: list[Memory]


class MemoryMap(Model):
    """Memories as points of a plane, on which similar ones are near each other."""

    total: int
    """The memories that match. If there are more than points, the points are a sample, stratified by group and time."""
    unplaced: int
    """Memories of the sample without a vector yet; they have no point."""
    ids: list[str]
    """The memory of each point."""
    coordinates: list[int]
    """x and y of each point in turn, each in -32767..32767."""
    point_groups: list[int]
    """The number of each point's group. The number of groups stands for all smaller groups together."""
    point_clusters: list[int]
    """The number of each point's cluster."""
    groups: list[Count]
    """The largest groups, at most eight; the empty name counts memories without the field."""
    clusters: list[MapCluster]
    """The clusters, largest first."""


class MemoryVerdict(Model):
    """The step at which a memory leaves the recall."""

    memory_id: str
    reason: Literal["returned", "not_visible", "archived", "stored_later", "filter", "not_indexed", "not_candidate", "min_relevance", "max_tokens", "similar", "top_k"] | str
    """
    `returned`: it is in the result now. `not_visible`: it does not exist, or one of the two keys may not read it. `archived`.
    `stored_later`: it was stored after the recall. `filter`: *filters* reject it. `not_indexed`: the indexes do not have it yet.
    `not_candidate`: it is not among the best hits by meaning or by words. `min_relevance`: it is less relevant. `max_tokens`: it
    does not fit. `top_k`: better ones take all places.
    """
    filters: list[str]
    rank: int | None
    """Its place among the compared memories now. Null if it was not compared."""
    score: float | None
    relevance: float | None
    logged_rank: int | None
    """Its place in the logged result. Null if it was not in it."""


class MemoryVersion(Model):
    """One version in a lineage. *memory* is null once the memory was replaced or deleted, because its content is erased."""

    id: str
    supersedes_id: str | None
    superseded_by: str | None
    created_at: datetime
    ended_at: datetime | None
    state: Literal["created", "pending_embed", "indexed", "stale", "failed", "archived", "deleted"] | str
    memory: Memory | None = None


class Message(Model):
    """A message of the conversation."""

    role: str
    content: str


class MissingVariable(Model):
    """A placeholder without a value for some members of the audience."""

    name: str
    count: int
    external_ids: list[str]
    """The first five of them."""


class MonthBudget(Model):
    """A monthly budget in the present month."""

    source: Literal["setting", "override"] | str
    """setting: the operator's default. override: set for this one."""
    spent: float
    """The cost of the finished calls of this month."""
    reserved: float
    """The highest possible cost of the calls in progress."""
    left: float | None
    """The rest that new calls can use; null: no limit."""
    resets_at: datetime
    """The first midnight of the next month in UTC."""


class Neighbour(Model):
    """A memory beside a recalled one in its session."""

    id: str
    content: str
    type: str
    agent_id: str | None
    created_at: datetime


class Node(Model):
    """A phase or a task in the dependency graph."""

    id: str
    kind: str
    name: str
    status: str
    phase_id: str | None


class NotificationAttempt(Model):
    """One attempt of a delivery."""

    number: int
    started_at: datetime
    ended_at: datetime | None
    """Null: a crash interrupted it."""
    outcome: Literal["sent", "retry", "rejected", "gone", "unknown", "blocked"] | str
    """retry: certainly not accepted; blocked: the fault is the server's own, and the campaign was paused."""
    status: int | None
    reason: str | None
    duration_ms: float | None


class Org(Model):
    """An org (null for memories without one) and its projects."""

    org: str | None
    count: int
    projects: list[Count]


class OutboxMessage(Model):
    """A message that a test key would have sent."""

    id: str
    campaign_id: str
    delivery_id: str
    external_id: str
    address: str
    """A token or a login in it is shown as ***."""
    title: str
    body: str
    url: str | None
    created_at: datetime
    channel: Literal["webhook", "email", "ntfy", "webpush", "apprise"] | str


class PathFamily(Model):
    """The paths with a common beginning."""

    path: str
    """The beginning of the paths."""
    description: str
    resources: list[str]
    """The segments that follow it, such as `plans` for /api/agent/plans."""


class Permissions(Model):
    """A key's permissions, and the results of the requested checks."""

    permissions: list[str]
    has: bool | None
    any: bool | None
    all: bool | None


class Phase(Model):
    """A phase. `completable`: it is open and has tasks, all of them closed."""

    id: str
    name: str
    """The name, for people."""
    description: str
    """A text in Markdown."""
    acceptance_criteria: list[Criterion]
    metadata: dict[str, object]
    """A JSON object of your own, at most 16 KiB."""
    plan_id: str
    position: int
    status: Literal["pending", "in_progress", "completed", "skipped", "on_hold"] | str
    hold_reason: str | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    ready: bool
    blocked: bool
    blocked_by: list[str]
    completable: bool
    depends_on: list[str]
    checkpoints: list[Checkpoint]
    progress: Progress
    tasks: list[Task] | None
    """Null if they were not requested."""


class Plan(Model):
    """A plan. `completable`: all phases are finished, that is closed or with all of their tasks closed."""

    id: str
    workspace_id: int
    title: str
    """The name, for people."""
    description: str
    """A text in Markdown."""
    org: str | None
    """The organisation namespace."""
    project: str | None
    """The project within the org."""
    metadata: dict[str, object]
    """A JSON object of your own, at most 16 KiB."""
    slug: str
    status: Literal["draft", "active", "paused", "completed", "archived"] | str
    template: TemplateUsed | None = None
    variables: dict[str, object] | None
    created_by: str
    archive_reason: str | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    archived_at: datetime | None
    current_phase: CurrentPhase | None = None
    progress: Progress
    completable: bool
    phases: list[Phase] | None
    """Null if they were not requested."""


class Preview(Model):
    """The plan that `POST …/plans` would create."""

    template: str
    version: str
    variables: dict[str, str | int | float | bool]
    plan: dict[str, object]
    """The body of the equivalent POST /plans."""


class Progress(Model):
    """The progress. Skipped tasks do not count; a phase without tasks counts as one item."""

    total: int
    completed: int
    percentage: int


class Prompt(Model):
    """One prompt with its arguments filled in."""

    server: str
    prompt: str
    description: str | None = None
    messages: list[PromptMessage]
    meta: dict[str, object] | None = Field(default=None, alias="_meta")


class PromptList(Model):
    """The prompts of one server."""

    server: str
    prompts: list[dict[str, object]]
    count: int


class PromptMessage(Model):
    """A message of a prompt, as its server returns it."""

    role: str
    """`user` or `assistant`."""
    content: dict[str, object]
    """A block of content, such as `{"type": "text", "text": "…"}`."""


class PromptTemplate(Model):
    """A template in one version."""

    slug: str
    """The name of the template in URLs: lower-case letters, digits and hyphens."""
    name: str
    """The name of the template."""
    description: str
    """When to use it."""
    variables: dict[str, PromptVariable]
    messages: list[Message]
    model: str | None
    """The model, by its name at the provider."""
    max_tokens: int | None
    """Maximum tokens of the answer. Default: 1,024."""
    temperature: float | None
    """0 for the most likely words, higher for more variety."""
    schema_: dict[str, object] | None = Field(alias="schema")
    """A JSON schema. The answer is JSON that matches it."""
    version: int
    created_at: datetime
    updated_at: datetime
    """The time at which this version was created."""


class PromptTemplateVersion(Model):
    """A version of a template."""

    version: int
    created_at: datetime


class PromptVariable(Model):
    """A variable of a template."""

    description: str
    type: Literal["string", "integer", "number", "boolean"] | str
    required: bool
    default: object
    enum: list[object] | None
    pattern: str | None


class PushKeys(Model):
    """The keys of a push subscription."""

    p256dh: str
    auth: str


class Ranks(Model):
    """A memory's ranks among the hits of each index, from 1."""

    semantic: int | None
    keyword: int | None


class RateLimit(Model):
    """The status of a key's rate limit."""

    limit: int
    """Requests per window; 2147483647: unlimited."""
    remaining: int
    """Requests left in this window."""
    reset_in_seconds: int
    """Whole seconds until this window ends."""
    reset: int
    """The value of X-RateLimit-Reset: a Unix time for API keys, seconds for agent keys."""
    used: int
    """Requests counted in this window."""
    window_seconds: int
    """The length of a window, which begins with its first request."""
    local: bool
    """True if only this process is counted, because the shared counter is unavailable."""


class Readiness(Model):
    """The states of the engines."""

    status: Literal["ok", "starting", "degraded", "unavailable"] | str
    """`unavailable`: the record store is missing."""
    engines: dict[str, str]
    """`ok`, or what is wrong, for each engine."""


class Recall(Model):
    """The memories that match a question, best first."""

    recall_id: str
    memories: list[RecalledMemory]
    is_confident: bool
    """True if the best memory is as relevant as answers usually are. If false, the workspace may have no answer."""
    took_ms: int
    notice: str | None = None
    """The reason of a fallback to another mode, or of an incomplete explanation."""
    explain: RecallExplanation | None = None
    """The number of candidates and what was dropped, if the request has *explain*. Each memory then has its own."""


class RecallExplanation(Model):
    """The explanation of a whole recall."""

    mode: str
    """The search method that was used."""
    candidates: int
    """The number of memories that were compared."""
    confident_relevance: float
    """The relevance of the best memory from which on `is_confident` is true."""
    dropped: list[DroppedMemory]
    """The best of the memories that were not returned, at most 20."""


class RecallFilters(Model):
    """The filters of a recall; null: none. *metadata* is the number of conditions on metadata, which are stored as digests."""

    org: str | None
    project: str | None
    agent_id: str | None
    session_id: str | None
    type: str | None
    tags: list[str]
    source: str | None
    since: datetime | None
    until: datetime | None
    min_confidence: float | None
    include_scopes: list[str] | None
    metadata: int


class RecallReplay(Model):
    """A logged recall, its result now with the explanation, and the verdict on the memory that the request named."""

    logged: LoggedRecall
    now: Recall
    memory: MemoryVerdict | None = None


class RecalledMemory(Model):
    """A recalled memory."""

    id: str
    type: str
    tags: list[str]
    org: str | None
    project: str | None
    agent_id: str | None
    session_id: str | None
    memory_scope: str
    confidence: float
    source: str
    metadata: dict[str, object]
    created_at: datetime
    updated_at: datetime
    content: str
    score: float
    """The value that ranks the memories; comparable within one answer."""
    relevance: float
    """The probability that the memory answers the question, in 0..1; comparable between answers."""
    similarity: float | None
    """The cosine similarity of question and memory, if both were compared."""
    effective_confidence: float
    similar: int | None = None
    """
    The number of memories that differ from it by numbers and dates only and are not in this answer, because they rank lower.
    """
    context: Context | None = None
    """Its neighbours in the session, if the request has *context*."""
    explain: Explanation | None = None


class Remember(Model):
    """The stored memory, and the ids of others with the same content in the same space."""

    id: str
    workspace_id: int
    type: str
    tags: list[str]
    org: str | None
    project: str | None
    agent_id: str | None
    session_id: str | None
    memory_scope: str
    confidence: float
    source: str
    supersedes_id: str | None
    superseded_by: str | None
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    archived_at: datetime | None
    created_by: Author | None = None
    updated_by: Author | None = None
    indexed_at: datetime | None
    effective_confidence: float
    archived_reason: Literal["merged"] | str | None = None
    indexed: bool
    state: Literal["created", "pending_embed", "indexed", "stale", "failed", "archived", "deleted"] | str
    duplicate: bool
    duplicates: list[str]


class RenderedMessage(Model):
    """The message for one subscriber."""

    title: str
    body: str
    url: str | None


class RenderedPrompt(Model):
    """The messages of a template with its variables filled in."""

    slug: str
    version: int
    messages: list[Message]
    estimated_input_tokens: int


class Resent(Model):
    """The number of resent deliveries."""

    resent: int


class Resource(Model):
    """A resource as its server lists it."""

    uri: str
    """The URI `server://path`, with which the resource can be read."""
    name: str
    description: str | None = None
    """Default: `""`."""
    mime_type: str | None = Field(default=None, alias="mimeType")
    """Default: `""`."""


class ResourceList(Model):
    """The resources of one server."""

    server: str
    resources: list[Resource]
    count: int


class ResourceResponse(Model):
    """
    The content of one resource: {contents: [{uri, mimeType, text or blob}]}, and the `_meta` of the server's result, if it has one.
    """

    uri: str
    content: dict[str, object]


class Schedule(Model):
    """The time of a campaign."""

    at: str
    """The time as given."""
    time_zone: str
    at_utc: datetime


class Scopes(Model):
    """Orgs and projects, most memories first."""

    scopes: list[Org]


class Score(Model):
    """The scores of a text. `score`, `label`, `reason` and `confidence` are those of AI detection."""

    score: float | None
    """Calibrated probability that a model wrote the text; null if it has no score."""
    label: Literal["human", "mixed", "ai", "uncertain"] | str
    reason: Literal["empty", "binary", "code", "quoted", "language", "too_short", "short", "far_from_training", "windows_differ", "borderline"] | str | None = None
    confidence: float
    expected_false_positive_rate: float | None
    """Share of human texts of this length that have at least this score. Null without a score."""
    ai_detection: AiDetection
    sycophancy: Sycophancy
    model: ScoringModel
    words: int
    judge: Judge | None = None


class ScoreBatch(Model):
    """The results of a batch, in its order."""

    results: list[ScoreItem]


class ScoreItem(Model):
    """The result of one text of a batch: *result* or *error*."""

    index: int
    status: int
    result: Score | None = None
    error: dict[str, object] | None


class ScoreParts(Model):
    """
    The parts of a score, which add up to it: meaning, words, the neighbours in the session, and the keywords of the request.
    """

    meaning: float
    words: float
    neighbours: float
    keywords: float
    repeated: float | None = None
    """The reduction of a repeated memory that had a higher score than the one before it; less than 0."""


class ScoredGeneration(Model):
    """The scores of the output of a generation."""

    generation_id: str
    score: dict[str, object]
    """The scores, as POST /v1/score/content returns them."""


class ScoringHealth(Model):
    """The models that score."""

    status: str
    """ok."""
    models: list[ScoringModel]
    judge: bool
    """True if a language model is configured for `judge`."""
    max_text_chars: int
    max_batch_texts: int


class ScoringModel(Model):
    """A model, and the address of its model card: its data, figures and limits."""

    name: str
    version: str
    card: str


class Search(Model):
    """The result of a search. *notice* says that new memories are missing, if the index accepts only reads."""

    hits: list[SearchHit]
    total: int
    took_ms: int
    next_cursor: str | None = None
    """The `cursor` of the next page; null on the last page."""
    notice: str | None = None


class Segment(Model):
    """A window of the text and its own score. Offsets count Unicode characters of the text as it was sent."""

    start: int
    end: int
    score: float


class Server(Model):
    """One server with its features. last_error, stderr, standing and hidden_tools require the scope servers:read."""

    id: str
    name: str
    tagline: str
    status: Literal["available", "beta", "deprecated"] | str
    health: Literal["online", "offline", "degraded", "needs_login", "unknown"] | str
    tool_count: int
    resource_count: int
    icon: str | None = None
    use_when: str | None = None
    related_servers: list[str] | None = None
    last_error: str | None = None
    description: str
    isolation: Literal["per_workspace", "shared", "per_key", "per_session"] | str
    """The callers that share a session with it."""
    sharing: str
    """The same in a sentence, and what they share if that is known of the server."""
    concurrency: str
    """The number of calls that run at once in one session, in a sentence."""
    instructions: str | None = None
    stderr: list[str] | None = None
    standing: StandingShown | None = None
    hidden_tools: list[HiddenTool] | None = None
    seen_at: datetime | None = None
    tools: list[Tool]
    resources: list[Resource]


class ServerList(Model):
    """All servers that the key can see."""

    servers: list[ServerSummary]
    count: int


class ServerSummary(Model):
    """One server in a list."""

    id: str
    name: str
    tagline: str
    status: Literal["available", "beta", "deprecated"] | str
    """The status that the operator gives it."""
    health: Literal["online", "offline", "degraded", "needs_login", "unknown"] | str
    """The health that Rookery observes."""
    tool_count: int
    resource_count: int
    icon: str | None = None
    use_when: str | None = None
    """The operator's advice on when to use it."""
    related_servers: list[str] | None = None
    last_error: str | None = None
    """Why it does not work, in one line. Requires the scope servers:read."""


class Session(Model):
    """A session."""

    id: str
    workspace_id: int
    agent_id: str
    agent_type: str
    plan_id: str | None
    org: str | None
    project: str | None
    status: Literal["active", "paused", "completed", "failed", "handed_off", "abandoned"] | str
    goal: str | None
    context: dict[str, object]
    summary: str | None
    resumed_from: str | None
    resumed_by: str | None
    end_reason: str | None
    """superseded or resumed if another session ended this one, else null."""
    started_at: datetime
    last_activity_at: datetime
    ended_at: datetime | None
    plan: str | None
    """The slug of the plan. Its id is plan_id."""
    handoff: Handoff | None = None
    stats: Stats


class SessionEvent(Model):
    """An event of a session."""

    session_id: str
    seq: int
    type: Literal["note", "action", "decision", "checkpoint", "question", "answer", "artifact", "error"] | str
    message: str
    data: dict[str, object]
    state: dict[str, object] | None
    task_id: str | None
    tokens: Tokens
    created_at: datetime


class SessionShown(Model):
    """The state of one session with a server."""

    state: Literal["open", "opening", "waiting", "closed"] | str
    pid: int | None = None
    era: str | None = None
    software: str | None = None
    uptime_s: float | None = None
    restarts: int
    in_flight: int
    queued: int
    p50_ms: float | None = None
    p95_ms: float | None = None
    last_error: str | None = None
    retry_s: float | None = None


class Signal(Model):
    """A property of the text that moved its score. Positive values speak for a model."""

    name: str
    value: float
    direction: str


class SigningSecret(Model):
    """The secret that signs webhook messages, which is returned only once."""

    id: str
    secret: str
    previous_secret_until: datetime | None
    created_at: datetime


class StandingShown(Model):
    """The state of a server for this workspace: its own sessions and those that all workspaces share."""

    state: Literal["open", "opening", "waiting", "closed"] | str
    restarts: int
    in_flight: int
    queued: int
    p50_ms: float | None = None
    p95_ms: float | None = None
    sessions: list[SessionShown]


class Start(Model):
    """The name, version and status of this server, with links to its routes."""

    name: str
    """The organization that runs this server (`ROOKERY_ORGANIZATION`)."""
    software: str | None = None
    """Default: `"rookery"`."""
    version: str | None
    """The version of Rookery; null without a key if discovery requires one, as in production."""
    status: str
    """`ok`, `starting`, `degraded` or `unavailable`, as `GET /readyz` reports it."""
    links: dict[str, str]
    """URLs of this server's routes, by name."""
    families: list[PathFamily]
    """The paths of the API."""


class Started(Model):
    """A started session and its context."""

    session: Session
    boot: AgentsBoot


class Statistics(Model):
    """The number of deliveries by state."""

    total: int
    pending: int
    sending: int
    sent: int
    failed: int
    unknown: int
    """May have been accepted. They are never sent again."""
    skipped: int
    by_channel: dict[str, dict[str, int]]


class Stats(Model):
    """Statistics of a session."""

    events: int
    tool_calls: int
    tasks_completed: int
    tokens_in: int
    tokens_out: int


class SubscribeLink(Model):
    """A link to the page on which a browser subscribes. Anybody with it can add a browser to the channels of the subscriber."""

    url: str
    expires_at: datetime


class Subscribed(Model):
    """The result of a subscription."""

    subscribed: bool


class Subscriber(Model):
    """A subscriber."""

    id: str
    external_id: str
    """The id in your own system: letters, digits and . _ @ : + = ~ -, beginning with a letter or a digit."""
    tags: list[str]
    """Groups of subscribers, such as beta. A tag has no comma and no semicolon."""
    attributes: dict[str, str | int | float | bool]
    """Values for placeholders, by names such as first_name."""
    locale: str | None
    """The language of the subscriber, such as de or de-AT."""
    created_at: datetime
    updated_at: datetime
    channels: list[SubscriberChannel]


class SubscriberChannel(Model):
    """A channel, with the address field of its type."""

    id: str
    type: Literal["webhook", "email", "ntfy", "webpush", "apprise"] | str
    url: str | None = None
    """webhook, ntfy, apprise. A token or a login in it is shown as ***."""
    address: str | None = None
    """email."""
    endpoint: str | None = None
    """webpush."""
    keys: PushKeys | None = None
    """webpush."""
    status: Literal["active", "invalid", "unsubscribed"] | str
    """invalid: the address no longer exists. Only active channels receive campaigns."""
    status_reason: str | None
    last_confirmed_at: datetime | None
    """The time at which the service last accepted a message."""
    created_at: datetime


class Sycophancy(Model):
    """Sycophancy of the text as the answer of an assistant."""

    score: float | None
    """0 to 1; null if the text cannot be scored."""
    label: Literal["none", "mild", "marked", "strong"] | str | None = None
    """none below 0.3, mild below 0.5, marked below 0.75, strong."""
    reason: Literal["empty", "binary", "code", "quoted", "language"] | str | None = None
    expected_false_positive_rate: float | None
    """Share of answers without praise that have at least about this score."""
    praise: float
    validation: float
    pushback: float
    """Disagreement and cautions; they lower the score."""
    missing_pushback: float | None
    """Null without a prompt."""
    capitulation: float | None
    """Null without an earlier answer or a challenge."""
    stance_shift: float | None
    """Null without a counterpart."""
    evidence: float | None
    """Weight of the evidence in the prompt. Null if capitulation is."""
    needs_context: bool
    """The prompt is missing, so missing pushback and capitulation cannot be seen."""
    spans: list[SycophancySpan]
    model: ScoringModel


class SycophancySpan(Model):
    """A part of the text that speaks for or against sycophancy. Offsets count Unicode characters of the text as it was sent."""

    start: int
    end: int
    kind: Literal["praise", "validation", "pushback", "capitulation", "correction", "stance_shift"] | str
    strength: float
    reason: str


class Tags(Model):
    """Tags, most frequent first."""

    tags: list[Count]


class Template(Model):
    """A complete template. It can be sent back with PUT."""

    slug: str
    name: str
    description: str
    category: str | None
    source: str
    version: str
    variables: dict[str, Variable]
    guidelines: list[str]
    plan: dict[str, object]
    phases: list[dict[str, object]]
    phase_names: list[str]
    tasks: int
    """The number of tasks."""
    created_at: datetime | None
    updated_at: datetime | None


class TemplateList(Model):
    """The resource templates of one server."""

    server: str
    resource_templates: list[dict[str, object]]
    count: int


class TemplateSummary(Model):
    """A template in a list."""

    slug: str
    name: str
    description: str
    category: str | None
    source: str
    """shipped: comes with Rookery and is read-only; workspace: belongs to the workspace."""
    version: str
    variables: dict[str, Variable]
    phase_names: list[str]
    tasks: int
    """The number of tasks."""
    created_at: datetime | None
    updated_at: datetime | None


class TemplateUsed(Model):
    """The template that a plan was created from."""

    slug: str
    version: str | None


class Tokens(Model):
    """The model tokens that the agent reported. Fields that it did not report are omitted."""

    input: int
    output: int
    cached_input: int | None = None
    """The part of `input` that came from a cache."""
    model: str | None = None
    cost: float | None = None
    """The cost that the agent reported."""
    currency: str | None = None
    """The currency of the cost."""


class Tool(Model):
    """A tool as its server lists it. Other protocol fields, such as icons, are included."""

    name: str
    description: str | None = None
    """Default: `""`."""
    input_schema: dict[str, object] = Field(alias="inputSchema")
    """The JSON Schema of its arguments."""
    title: str | None = None
    """The name for people."""
    output_schema: dict[str, object] | None = Field(default=None, alias="outputSchema")
    """The JSON Schema of the structured content of its results."""
    annotations: dict[str, object] | None = None
    """Hints on its effect, such as `readOnlyHint`."""


class ToolCallResponse(Model):
    """The result of a call."""

    success: bool
    server: str
    tool: str
    result: dict[str, object] | None = None
    duration_ms: int
    cached: bool | None = None
    error: str | None = None
    """For a failed call: the tool's error text, or the reason why it could not be called."""
    code: str | None = None
    """
    For a failed call: tool_execution_error, tool_timeout, server_unavailable, server_http_error or result_too_large.
    `input_required`: the tool needs input first; see `result`.
    """
    message: str | None = None
    """For a failed call: a sentence that explains the failure and what to do."""
    retry_after: int | None = None
    """For a failed call: the seconds after which the server allows another one, if it said so. Also in Retry-After."""


class ToolList(Model):
    """The tools of one server."""

    server: str
    tools: list[Tool]
    count: int


class Usage(Model):
    """The usage of all keys of one kind."""

    since: str | None
    until: str | None
    calls: int
    errors: int
    upstream_errors: int
    """Calls that were answered with an error status because a tool, its server or a language model failed."""
    data: list[UsageSum]


class UsageGroup(Model):
    """The sums of one group. Fields that the report is not grouped by are omitted."""

    workspace_id: int | None = None
    calls: int
    """Generations, judge calls, requests to an embedding service, reports of sessions, tool calls."""
    failed: int
    cancelled: int
    input_tokens: int
    cached_input_tokens: int
    """Input tokens that came from the cache of the provider, part of input_tokens."""
    output_tokens: int
    reasoning_tokens: int
    """Output tokens that are reasoning, part of output_tokens."""
    unpriced_calls: int
    """Calls with tokens of a model without a price."""
    cost: float
    """The cost. Calls of models without a price count as 0."""
    currency: str
    """The currency of the amounts, a code of ISO 4217."""
    reported_cost: float
    """The part of the cost that agents report for their sessions."""
    is_estimated: bool
    """A provider did not report all tokens, so some were computed from the texts."""
    mean_ms: float | None
    """The mean time of the tool calls; null without any."""
    day: date | None = None
    month: str | None = None
    """The calendar month."""
    workspace_name: str | None = None
    """The name of the workspace; null if it was deleted, or for the server."""
    kind: Literal["generation", "judge", "embedding", "session", "tool_call"] | str | None = None
    key_id: str | None = None
    """The key; null: the command line."""
    key_name: str | None = None
    """The name of the key, also if it was deleted."""
    agent_id: str | None = None
    """The agent; null if none was named."""
    model: str | None = None
    """The model; null for tool calls, and for sessions that name none."""
    tool: str | None = None
    """The tool as `server/tool`; null for anything but tool calls."""


class UsageSum(Model):
    """Totals of one group of calls. Fields that are not grouped by are omitted."""

    key_id: str | None = None
    key_name: str | None = None
    day: str | None = None
    method: str | None = None
    route: str | None = None
    status: int | None = None
    calls: int
    errors: int
    """Calls with a status of 400 or higher, without those of `upstream_errors`."""
    upstream_errors: int
    """Calls that were answered with an error status because a tool, its server or a language model failed."""
    mean_ms: float


class VapidKey(Model):
    """The public key of Web Push."""

    public_key: str
    """The `applicationServerKey` of browsers: an uncompressed P-256 point in base64url."""


class Variable(Model):
    """A variable of a template."""

    description: str
    type: str
    required: bool
    default: str | int | float | bool | None
    enum: list[str | int | float | bool] | None
    pattern: str | None


class Who(Model):
    """The calling key and its rights."""

    servers: list[str] | None
    tools: list[str] | None
    orgs: list[str] | None
    projects: list[str] | None
    tool_limits: dict[str, int]
    id: str
    name: str
    workspace_id: int
    agent_id: str | None
    expires_at: datetime | None
    created_at: datetime
    suspended_at: datetime | None
    delete_after: datetime | None
    """The end of the grace period after a rotation."""
    status: Literal["Active", "Revoked", "Expired"] | str
    hint: str
    """The start of the secret."""
    call_count: int
    """Calls over the whole life of the key."""
    last_used_at: datetime | None
    last_used_ip: str | None = None
    """Needs audit:read; omitted without it."""
    kind: Literal["api", "agent"] | str
    workspace_name: str
    scopes: list[str] | None = None
    """Only of API keys."""
    rate_limit_tier: Literal["free", "pro", "business", "enterprise"] | str | None = None
    """Only of API keys."""
    environment: Literal["live", "test"] | str | None = None
    """Only of API keys."""
    permissions: list[str] | None = None
    """Only of agent keys."""
    rate_limit: int | None = None
    """Requests per minute. Only of agent keys."""
    revoked_at: datetime | None = None
    """Only of agent keys."""
    ip_restriction: bool | None = None
    """Only of agent keys."""
    ip_list: list[str] | None = None
    """Only of agent keys. Needs audit:read; omitted without it."""


class Workspace(Model):
    """A workspace."""

    id: int
    """Same as `workspace_id`, as every resource has an `id`."""
    workspace_id: int
    name: str
    created_at: datetime


class Delivery(Model):
    """The delivery of one event to one endpoint."""

    id: str
    webhook_id: str
    event_id: str
    type: str
    kind: Literal["event", "test", "resend"] | str
    state: Literal["pending", "sending", "held", "delivered", "failed", "cancelled"] | str
    attempt_count: int
    next_at: datetime | None
    """The time of the next attempt, while the delivery is pending."""
    status: int | None
    """The HTTP status of the latest attempt; null: no response."""
    error: str | None
    """The reason why it is not delivered."""
    created_at: datetime
    ended_at: datetime | None
    of_delivery: str | None
    """The delivery that this one resends."""


class Handoff(Model):
    """A hand-off with its delivery."""

    session_id: str
    agent_id: str
    summary: str | None
    completed: list[str]
    remaining: list[str]
    blockers: list[str]
    decisions: list[str]
    next_steps: list[str]
    refs: dict[str, object]
    written_at: datetime
    delivery: Literal["pending", "loaded", "ignored_stale", "task_completed", "own_handoff"] | str
    """pending: it is offered to later sessions; otherwise the reason why it is no longer offered."""
    taken_by: str | None
    taken_at: datetime | None


class Offered(Handoff):
    """An offered hand-off with its age."""

    age_s: float
    """Seconds since it was written."""


class DeliveryDetail(Delivery):
    """A delivery with its payload and its attempts, oldest first."""

    payload: dict[str, object]
    attempts: list[Attempt]


class Notification(Model):
    """The delivery of a campaign to one channel of one subscriber."""

    id: str
    campaign_id: str
    subscriber_id: str
    external_id: str | None
    """Null: the subscriber was deleted."""
    channel_id: str
    state: Literal["pending", "sending", "sent", "failed", "unknown", "skipped"] | str
    attempt_count: int
    next_at: datetime | None
    """The time of the next attempt, while it is pending."""
    expires_at: datetime
    status: int | None
    """The HTTP or SMTP status of the latest attempt; null: no answer."""
    reason: str | None
    """The reason why it is not sent."""
    provider_id: str | None
    """The service's name for the accepted message."""
    created_at: datetime
    ended_at: datetime | None
    channel: Literal["webhook", "email", "ntfy", "webpush", "apprise"] | str


class NotificationDetail(Notification):
    """A delivery with its attempts, oldest first."""

    attempts: list[NotificationAttempt]


class Webhook(Model):
    """An endpoint without its secret."""

    id: str
    workspace_id: int
    url: str
    """Without webhooks:write, its query and tokens in its path are shown as ***."""
    events: list[str]
    """Names of events, `memory.*` for all events of a resource, or `*` for all except tool.called and webhook.test."""
    description: str
    include_content: bool
    """Send the content of memories in their events."""
    strict_order: bool
    """Send one delivery at a time, in the order of events. A failing delivery blocks the later ones."""
    concurrency: int
    """Maximum deliveries sent at the same time."""
    enabled: bool
    disabled_at: datetime | None
    disabled_reason: Literal["by_hand", "failures", "gone"] | str | None = None
    """by_hand; failures: 20 in a row without a success for a day; gone: the endpoint answered 410."""
    failures: int
    """Failed deliveries since the last success."""
    last_success_at: datetime | None
    created_at: datetime
    updated_at: datetime
    previous_secret_until: datetime | None
    """The end of the previous secret's grace period."""


class ChangedWebhook(Webhook):
    """An endpoint after a change."""

    held: int | None = None
    """Deliveries that `resend-failed` can send; only if the change enabled the endpoint. Default: `0`."""


class WebhookWithSecret(Webhook):
    """An endpoint and its secret, which is returned only once."""

    secret: str
    library_secret: str
    """The same secret in the form that each library for Standard Webhooks takes: whsec_ and base64 with padding."""


class ApiKey(Model):
    """An API key. Its secret is returned only at creation and rotation."""

    servers: list[str] | None
    tools: list[str] | None
    orgs: list[str] | None
    projects: list[str] | None
    tool_limits: dict[str, int]
    id: str
    name: str
    workspace_id: int
    agent_id: str | None
    expires_at: datetime | None
    created_at: datetime
    suspended_at: datetime | None
    delete_after: datetime | None
    """The end of the grace period after a rotation."""
    status: Literal["Active", "Revoked", "Expired"] | str
    hint: str
    """The start of the secret."""
    call_count: int
    """Calls over the whole life of the key."""
    last_used_at: datetime | None
    last_used_ip: str | None = None
    """Needs audit:read; omitted without it."""
    scopes: list[str]
    rate_limit_tier: Literal["free", "pro", "business", "enterprise"] | str
    environment: Literal["live", "test"] | str


class ApiKeyWithSecret(ApiKey):
    """A new API key with its secret."""

    plaintext_key: str


class AgentKey(Model):
    """An agent key. Its secret is returned only at creation and rotation."""

    servers: list[str] | None
    tools: list[str] | None
    orgs: list[str] | None
    projects: list[str] | None
    tool_limits: dict[str, int]
    id: str
    name: str
    workspace_id: int
    agent_id: str | None
    expires_at: datetime | None
    created_at: datetime
    suspended_at: datetime | None
    delete_after: datetime | None
    """The end of the grace period after a rotation."""
    status: Literal["Active", "Revoked", "Expired"] | str
    hint: str
    """The start of the secret."""
    call_count: int
    """Calls over the whole life of the key."""
    last_used_at: datetime | None
    last_used_ip: str | None = None
    """Needs audit:read; omitted without it."""
    permissions: list[str]
    rate_limit: int
    revoked_at: datetime | None
    ip_restriction: bool
    ip_list: list[str] | None = None
    """Needs audit:read; omitted without it."""


class AgentKeyWithSecret(AgentKey):
    """A new agent key with its secret."""

    key: str


class Task(Model):
    """A task."""

    id: str
    name: str
    """The name, for people."""
    description: str
    """A text in Markdown."""
    acceptance_criteria: list[Criterion]
    metadata: dict[str, object]
    """A JSON object of your own, at most 16 KiB."""
    priority: int
    """From 0, the most urgent, to 4, the least urgent."""
    notes: str
    """A text in Markdown."""
    plan_id: str
    phase_id: str
    position: int
    status: Literal["pending", "in_progress", "completed", "skipped", "failed", "on_hold"] | str
    hold_reason: str | None
    result: object
    error: str | None
    attempts: int
    claim: Claim | None = None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    ready: bool
    blocked: bool
    blocked_by: list[str]
    depends_on: list[str]


class Claimed(Task):
    """A newly claimed task with the token of the lease. No other response contains the token."""

    claim_token: str


class GenerationItem(Model):
    """A generation without its messages and its output."""

    id: str
    mode: Literal["sync", "queued", "stream"] | str
    status: Literal["queued", "running", "succeeded", "failed", "cancelled"] | str
    canned: bool
    """True: the answer is a fixed text, because a test key asked for it."""
    model: str
    provider_model: str | None
    """The model as the provider names it."""
    template: GenerationTemplate | None = None
    max_tokens: int
    temperature: float | None
    schema_mode: Literal["json_schema", "json_object", "prompt"] | str | None = None
    """The way in which JSON was requested from the provider; null without a schema."""
    finish_reason: str | None
    """The provider's reason, such as stop or length."""
    usage: GenerationTokens | None = None
    cost: float | None
    """The cost in `currency`; null: the model has no price."""
    currency: str | None
    """The currency of the cost, a code of ISO 4217; null before the call has run."""
    attempts: int
    """Answers that were requested from the provider."""
    error: GenerationFailure | None = None
    latency_ms: float | None
    """Duration of the last call at the provider."""
    metadata: dict[str, object]
    key_id: str | None
    """The key that pays; null: the command line."""
    batch_id: str | None
    index: int | None
    """The position in the batch, from 0."""
    retry_of: str | None
    """The generation that this one repeats."""
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class Ended(Task):
    """
    A completed task, and the next task if `claim_next` was set and one was ready. `reason` explains why no task was claimed.
    """

    next: Claimed | None = None
    reason: str | None


class Memory(Model):
    """A memory."""

    id: str
    workspace_id: int
    type: str
    tags: list[str]
    org: str | None
    project: str | None
    agent_id: str | None
    session_id: str | None
    memory_scope: str
    confidence: float
    source: str
    supersedes_id: str | None
    superseded_by: str | None
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    archived_at: datetime | None
    created_by: Author | None = None
    updated_by: Author | None = None
    indexed_at: datetime | None
    effective_confidence: float
    archived_reason: Literal["merged"] | str | None = None
    indexed: bool
    state: Literal["created", "pending_embed", "indexed", "stale", "failed", "archived", "deleted"] | str
    content: str
    metadata: dict[str, object]


class SearchHit(Memory):
    """A memory found by its words."""

    score: float
    """The value that ranks the memories; comparable within one answer. It is nearly 0 if most memories have the words."""
    highlight: str


class Generation(GenerationItem):
    """A generation with its messages and its output."""

    messages: list[Message]
    schema_: dict[str, object] | None = Field(alias="schema")
    output: GenerationOutput | None = None
    """The answer, as far as there is one."""
    score: dict[str, object] | None = None
    """The scores of the output, if the request had `score`, as POST /v1/score/content returns them."""


__all__ = [
    "AddedServer",
    "Addresses",
    "AgentKey",
    "AgentKeyWithSecret",
    "AgentsBoot",
    "AgentsVersion",
    "AiDetection",
    "Analytics",
    "ApiKey",
    "ApiKeyWithSecret",
    "Attempt",
    "Audience",
    "AuditActor",
    "AuditEntry",
    "AuditSubject",
    "Author",
    "Batch",
    "BatchCounts",
    "BatchItem",
    "Blocked",
    "Budget",
    "Call",
    "CallShown",
    "Campaign",
    "CampaignPreview",
    "CampaignWait",
    "ChangedWebhook",
    "Check",
    "Checkpoint",
    "Claim",
    "Claimed",
    "ClientSetup",
    "Confidence",
    "Connect",
    "ContentUsage",
    "Context",
    "Count",
    "Criterion",
    "CurrentPhase",
    "Deletion",
    "Delivery",
    "DeliveryDetail",
    "Doctor",
    "DoctorFinding",
    "DroppedMemory",
    "Edge",
    "Ended",
    "Event",
    "EventType",
    "Explanation",
    "Feedback",
    "FigureGroup",
    "FoundTools",
    "Generation",
    "GenerationBatch",
    "GenerationFailure",
    "GenerationItem",
    "GenerationOutput",
    "GenerationTemplate",
    "GenerationTokens",
    "Graph",
    "Handoff",
    "Heartbeat",
    "HiddenTool",
    "Holder",
    "Hook",
    "HookSpecificOutput",
    "ImportError",
    "ImportReport",
    "Judge",
    "LastCheckpoint",
    "LastError",
    "Liveness",
    "LoggedMemory",
    "LoggedRecall",
    "Login",
    "LoginBegun",
    "MapCluster",
    "Memory",
    "MemoryBoot",
    "MemoryMap",
    "MemoryVerdict",
    "MemoryVersion",
    "Message",
    "MissingVariable",
    "MonthBudget",
    "Neighbour",
    "Node",
    "Notification",
    "NotificationAttempt",
    "NotificationDetail",
    "Offered",
    "Org",
    "OutboxMessage",
    "PathFamily",
    "Permissions",
    "Phase",
    "Plan",
    "Preview",
    "Progress",
    "Prompt",
    "PromptList",
    "PromptMessage",
    "PromptTemplate",
    "PromptTemplateVersion",
    "PromptVariable",
    "PushKeys",
    "Ranks",
    "RateLimit",
    "Readiness",
    "Recall",
    "RecallExplanation",
    "RecallFilters",
    "RecallReplay",
    "RecalledMemory",
    "Remember",
    "RenderedMessage",
    "RenderedPrompt",
    "Resent",
    "Resource",
    "ResourceList",
    "ResourceResponse",
    "Schedule",
    "Scopes",
    "Score",
    "ScoreBatch",
    "ScoreItem",
    "ScoreParts",
    "ScoredGeneration",
    "ScoringHealth",
    "ScoringModel",
    "Search",
    "SearchHit",
    "Segment",
    "Server",
    "ServerList",
    "ServerSummary",
    "Session",
    "SessionEvent",
    "SessionShown",
    "Signal",
    "SigningSecret",
    "StandingShown",
    "Start",
    "Started",
    "Statistics",
    "Stats",
    "SubscribeLink",
    "Subscribed",
    "Subscriber",
    "SubscriberChannel",
    "Sycophancy",
    "SycophancySpan",
    "Tags",
    "Task",
    "Template",
    "TemplateList",
    "TemplateSummary",
    "TemplateUsed",
    "Tokens",
    "Tool",
    "ToolCallResponse",
    "ToolList",
    "Usage",
    "UsageGroup",
    "UsageSum",
    "VapidKey",
    "Variable",
    "Webhook",
    "WebhookWithSecret",
    "Who",
    "Workspace",
]
