"""
What is asked of Rookery, as data: the sentences of the specification, and the decisions, that are built today.

`test_requirements.py` holds each against the tests. A requirement is proven by a test whose docstring names its section
(`spec 4.3`) or its number (`D-44`), and whose docstring or name has its word, if it has one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Requirement:
    """
    One thing that is asked.

    Attributes:
        section: `spec 4.3` or `D-44`, as a docstring names it.
        says: What is asked, in our words.
        word: What a test on it has in its docstring or name; empty: the section alone tells.
        also: The decision that says it exactly: a test of that proves this too.
        untested: Why no test proves it; empty: one must.
    """

    section: str
    says: str
    word: str = ""
    also: str = ""
    untested: str = ""

    @property
    def id(self) -> str:
        """How it is named in a report."""
        return f"{self.section} {self.word}".strip()


SPEC = (
    Requirement("spec 1", "Tool servers are discovered, their tools listed and called."),
    Requirement("spec 2.2", "An agent key has the fields of the table; only a SHA-256 hash of it is stored."),
    Requirement("spec 2.3", "An API key has the fields of the table; only a bcrypt hash of it is stored."),
    Requirement("spec 2.4", "A webhook endpoint has a url, events and a secret."),
    Requirement("spec 2.5", "A memory has the fields of the table."),
    Requirement("spec 2.6", "The derived indexes hold those fields; content is analysed as English."),
    Requirement("spec 2.7", "Memories belong to a project, an agent, a session, or an org."),
    Requirement("spec 2.8", "workspace_id is a hard boundary; an org filter never returns another org's memories."),
    Requirement("spec 3.1", "A tool server is available, beta or deprecated.", also="D-33"),
    Requirement("spec 3.2", "An agent key is Active, Revoked or Expired; revoking counts at once."),
    Requirement("spec 3.3", "Rotation returns a new key with the same settings; both work in the grace period.", "grace"),
    Requirement("spec 3.3", "Expired keys are deleted by a prune command.", "prune"),
    Requirement("spec 3.4", "A memory is pending, then indexed, then stale when its record changes."),
    Requirement("spec 3.4", "A superseded memory is deleted, and its removal from the indexes queued.", "supersede", also="D-41"),
    Requirement("spec 4.1", "The six routes of the table, with their statuses."),
    Requirement("spec 4.2", "Plans are listed at /api/agent/plans and /v1/plans."),
    Requirement("spec 4.3", "remember stores at once, indexes later and answers 201.", "remember"),
    Requirement("spec 4.3", "recall ranks by relevance, then scope, then confidence, then recency.", "recall"),
    Requirement("spec 4.3", "search is by words; hits, total and took_ms.", "search"),
    Requirement("spec 4.3", "tags are counted, the most frequent first.", "tags"),
    Requirement("spec 4.3", "scopes are orgs and their projects, counted.", "scopes"),
    Requirement("spec 4.4", "brain:reindex has its options, and reports total, successes, failures and duration."),
    Requirement("spec 4.4", "brain:clean strips personal data and normalises; a stale re-index propagates it.", "cleans"),
    Requirement("spec 4.4", "brain:prune has its options, and keeps of duplicates the highest confidence.", "deduplicate"),
    Requirement("spec 4.4", "brain:consolidate merges into the highest confidence, re-embeds, and archives the others.", "primary"),
    Requirement("spec 4.4", "brain:backfill-org infers org from project.", "infers"),
    Requirement("spec 4.5", "The raw OpenAPI 3.0 document has openapi, info, paths, components.", word="keys"),
    Requirement("spec 4.5", "It is enabled by default outside production, disabled in it.", word="disabled"),
    Requirement("spec 4.5", "It is guarded by authentication and a view permission.", word="guarded"),
    Requirement("spec 4.5", "Endpoints and controllers may be hidden.", word="hidden"),
    Requirement("spec 4.5", "Endpoints and controllers may be tagged.", word="tagged"),
    Requirement("spec 4.5", "Parameters, responses and security are declared per endpoint.", word="security"),
    Requirement("spec 4.5", "Rate limit headers and X-Workspace-ID are documented on each endpoint.", word="documented"),
    Requirement("spec 4.6", "A page has data, links and meta."),
    Requirement("spec 5.1", "Bearer and X-API-Key are accepted on every endpoint.", also="D-22"),
    Requirement("spec 5.2", "The form of API keys, their scopes, and what is refused without one."),
    Requirement("spec 5.3", "The form of agent keys, their permissions, and the seven steps in order."),
    Requirement("spec 6.1", "Stored, recalled and re-indexed memories are announced; jobs are tried again after 10, 60 and 300 s."),
    Requirement("spec 6.2", "A delivery is signed; a receiver refuses a mismatch with 401.", word="401"),
    Requirement("spec 6.2", "A failed delivery is tried again at most 3 times, 60 seconds apart.", word="60", also="D-81"),
    Requirement("spec 6.1", "A stored memory updates training data.", word="memorystored"),
    Requirement("spec 7", "The statuses and codes of the table."),
    Requirement("spec 8", "The tiers, the headers of the rate limit, and the half-lives."),
    Requirement("spec 9", "Paths carry v1.", untested="The paths are in the tables of the routes, which every test of a route calls."),
)

DECISIONS = (
    Requirement("D-01", "Processes of one host share the data folder, and see each other's commits."),
    Requirement("D-02", "Settings are read once; what is wrong refuses to start in one line."),
    Requirement("D-03", "The first start makes a workspace and two keys, once."),
    Requirement("D-04", "The commands, their JSON and their exit codes."),
    Requirement("D-05", "healthz and readyz need no key; metrics need platform:metrics, or a port of the loopback."),
    Requirement(
        "D-06", "make has its targets.", untested="The Makefile is run by whoever checks out; what the docs name of it is compared with it."
    ),
    Requirement("D-07", "What is sealed opens by its key, at its place alone; keys change without a gap."),
    Requirement("D-08", "A deprecated server says so.", also="D-33"),
    Requirement("D-09", "Foreign hosts and cross-site Basic are refused."),
    Requirement("D-10", "One body for every error."),
    Requirement("D-11", "Every answer has a request id, and so have log lines and spans."),
    Requirement("D-12", "Bounds of pages; links under our own address."),
    Requirement("D-13", "Ids are UUIDs of version 7, times have Z."),
    Requirement("D-14", "A marked request is done once; its repetition gets the same answer."),
    Requirement("D-15", "X-Workspace-ID must be the key's."),
    Requirement("D-16", "Bodies are bounded in size, depth and kind; heads, slow clients and connections in time and number."),
    Requirement("D-17", "Memories, backlog and disk are bounded."),
    Requirement("D-20", "bcrypt is proven once; the row is read on every request."),
    Requirement("D-21", "Extending makes an expired key active; revoked stays revoked."),
    Requirement("D-22", "Three headers for both kinds; two different keys are refused."),
    Requirement("D-23", "One grammar of scopes; platform scopes outside of wildcards; allow-lists in every query."),
    Requirement("D-24", "Only what one holds can be handed on."),
    Requirement("D-25", "Test keys act in a twin."),
    Requirement("D-26", "Grace of 24 h, 0 to 720; no rotation in it."),
    Requirement("D-27", "Limits are exact, and counted locally while the counter is down."),
    Requirement("D-28", "The caller's address, and lists of addresses."),
    Requirement("D-29", "A row for each call, and sums by day."),
    Requirement("D-30", "Server ids, tool names, and uris of resources."),
    Requirement("D-31", "servers.json, read again when it changes."),
    Requirement("D-32", "Sessions with upstreams; no orphan."),
    Requirement("D-32", "Several sessions side by side, each call to the one with the least to do.", "replica"),
    Requirement("D-32", "A breaker for crash loops.", "breaker"),
    Requirement("D-32", "Also kill -9 of Rookery leaves no process.", "kill -9"),
    Requirement("D-33", "status is the operator's, health is ours; disabled is 403; a brake acts on the next call."),
    Requirement("D-34", "Statuses, codes and times of a call."),
    Requirement("D-34", "A call that is told of while it runs.", word="stream"),
    Requirement("D-34", "A tool that asks before it answers.", word="input_required"),
    Requirement("D-34", "Results of read-only tools are kept.", word="cache_s"),
    Requirement("D-34", "A caller that leaves cancels upstream.", word="leaves"),
    Requirement("D-35", "What is told of tool servers, to whom, by our own addresses; clients' set-ups."),
    Requirement("D-37", "Tools are found by meaning and word; each server has an OpenAPI document."),
    Requirement("D-36", "Our own MCP endpoint, in both eras of the protocol, with our keys."),
    Requirement("D-38", "A row for each tool call."),
    Requirement("D-38", "Figures over the rows, by anything, over any range.", word="p50"),
    Requirement("D-38", "Arguments only by setting, redacted.", word="arguments"),
    Requirement("D-38", "X-Session-ID that is unknown or ended.", word="unknown or ended"),
    Requirement("D-40", "What remember requires, and its defaults."),
    Requirement("D-41", "Superseding twice, and what is left of the old."),
    Requirement("D-42", "What recall takes and answers."),
    Requirement("D-43", "One rule of visibility."),
    Requirement("D-44", "The order of what is recalled, in all three modes."),
    Requirement("D-45", "Decay by half-lives."),
    Requirement("D-46", "Records confirm what indexes find."),
    Requirement("D-47", "Feedback moves confidence by bounded steps, once a recall and once a day for one key."),
    Requirement("D-48", "An agent's own memories, surest first, and what it boots with, within one budget."),
    Requirement("D-49", "Query text is data; phrases, minus, highlights."),
    Requirement("D-50", "Batches, lists, changes, archive and restore."),
    Requirement("D-51", "Indexing is a durable job."),
    Requirement("D-52", "What the commands touch."),
    Requirement("D-53", "A session's memory lives seven days."),
    Requirement("D-53", "It is archived when its Rookery session completes or fails, or promoted.", word="promote"),
    Requirement("D-54", "Vectors of another model take no part; the former ones answer until all new ones are there."),
    Requirement("D-55", "Long contents are chunks; the best one counts."),
    Requirement("D-57", "A workspace keeps training rows if it wants them; they go with their memory.", word="rows"),
    Requirement("D-57", "`brain export-training` writes them.", word="export-training"),
    Requirement("D-60", "Plans, phases and tasks with their fields; statuses follow one table.", word="table"),
    Requirement("D-60", "Blocked and ready are derived; circles are refused.", word="circle"),
    Requirement("D-60", "Open phases keep a plan from being completed, but for force.", word="force"),
    Requirement("D-60", "An archived plan is read-only until it is restored.", word="archived"),
    Requirement("D-61", "One claims a task, whoever tries.", word="once"),
    Requirement("D-61", "A lease ends, and is kept by heartbeats.", word="lease"),
    Requirement("D-61", "Over five lost leases a task fails.", word="five"),
    Requirement("D-61", "claim-next gives the best, or says why there is none.", word="why"),
    Requirement("D-62", "A session starts with what its agent needs."),
    Requirement("D-62", "One open session for each agent and plan, unless taken over.", word="takeover"),
    Requirement("D-62", "Without activity for 24 hours it is abandoned.", word="abandoned"),
    Requirement("D-62", "Events have numbers without gaps.", word="gap"),
    Requirement("D-62", "They are sent as they happen, from Last-Event-ID on.", word="last-event-id"),
    Requirement("D-62", "A hand-off is offered until it is taken.", word="offered"),
    Requirement("D-64", "Another version is 412; every change is an event."),
    Requirement("D-65", "The routes of plans under both prefixes, with their permissions."),
    Requirement("D-80", "An endpoint's secret is shown once; a new one has the old one beside it.", word="grace"),
    Requirement("D-80", "A test tells one endpoint alone.", word="test"),
    Requirement("D-80", "What failed or was held is sent again.", word="resend-failed"),
    Requirement("D-81", "Deliveries are signed in both ways.", word="signature"),
    Requirement("D-91", "verify_webhook believes what was signed by one of the secrets."),
    Requirement("D-82", "Users' addresses are judged, and connected to as they were judged."),
    Requirement("D-83", "The document is equal to the mounted routes.", word="equal"),
    Requirement("D-83", "Each operation has a name of its own.", word="unique"),
    Requirement("D-63", "Values are inserted once, and what comes of it is validated.", word="inserted"),
    Requirement("D-63", "Unknown and missing variables are refused by name.", word="missing"),
    Requirement("D-63", "Each content is a version.", word="version"),
    Requirement("D-63", "Eight ship, read-only; they can be copied.", word="copied"),
    Requirement("D-63", "Files of templates are checked and added by command.", word="command"),
    Requirement("D-92", "The memory is a tool server."),
    Requirement("D-92", "Agent work is one too, each tool with its twin's permission.", word="twin"),
)

REQUIREMENTS = (*SPEC, *DECISIONS)

SECTIONS = frozenset("1 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 3.1 3.2 3.3 3.4 4.1 4.2 4.3 4.4 4.5 4.6 5.1 5.2 5.3 6.1 6.2 7 8 9".split()) | {
    "2",
    "3",
    "4",
    "5",
    "6",
}
"""Every section that the specification has."""
