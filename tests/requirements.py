"""
The requirements of Rookery as data: sentences of the specification and of the decisions that are implemented.

`test_requirements.py` checks that a test proves each: its docstring names the section (`spec 4.3`) or number (`D-44`), and its
docstring or name contains the requirement's word, if it has one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Requirement:
    """
    A requirement.

    Attributes:
        section: `spec 4.3` or `D-44`, as a docstring names it.
        summary: The requirement in one sentence.
        word: A word that the docstring or name of its test contains; empty: any test of the section.
        alternative: A decision that states it exactly: a test of that proves this too.
        untested: The reason why no test proves it; empty: a test must.
    """

    section: str
    summary: str
    word: str = ""
    alternative: str = ""
    untested: str = ""

    @property
    def id(self) -> str:
        """Its id in a report."""
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
    Requirement("spec 3.1", "A tool server is available, beta or deprecated.", alternative="D-33"),
    Requirement("spec 3.2", "An agent key is Active, Revoked or Expired; revoking counts at once."),
    Requirement("spec 3.3", "Rotation returns a new key with the same settings; both work in the grace period.", "grace"),
    Requirement("spec 3.3", "Expired keys are deleted by a prune command.", "prune"),
    Requirement("spec 3.4", "A memory is pending, then indexed, then stale when its record changes."),
    Requirement("spec 3.4", "A superseded memory is deleted, and its removal from the indexes queued.", "supersede", alternative="D-41"),
    Requirement("spec 4.1", "The six routes of the table, with their statuses."),
    Requirement("spec 4.2", "Plans are listed at /api/agent/plans and /v1/plans."),
    Requirement("spec 4.3", "remember stores at once, indexes later and answers 201.", "remember"),
    Requirement("spec 4.3", "recall ranks by relevance, then scope, then confidence, then recency.", "recall"),
    Requirement("spec 4.3", "search is by words; hits, total and took_ms.", "search"),
    Requirement("spec 4.3", "tags are counted, the most frequent first.", "tags"),
    Requirement("spec 4.3", "scopes are orgs and their projects, counted.", "scopes"),
    Requirement("spec 4.4", "brain:reindex has its options, and reports total, successes, failures and duration."),
    Requirement("spec 4.4", "brain:clean strips personal data and normalises; a stale re-index propagates it.", "cleaned"),
    Requirement("spec 4.4", "brain:prune has its options, and keeps of duplicates the highest confidence.", "duplicates"),
    Requirement("spec 4.4", "brain:consolidate merges into the highest confidence, re-embeds, and archives the others.", "primary"),
    Requirement("spec 4.4", "brain:backfill-org infers org from project.", "backfill"),
    Requirement("spec 4.5", "The raw OpenAPI 3.0 document has openapi, info, paths, components.", word="keys"),
    Requirement("spec 4.5", "It is enabled by default outside production, disabled in it.", word="production"),
    Requirement("spec 4.5", "It is guarded by authentication and a view permission.", word="permission"),
    Requirement("spec 4.5", "Endpoints and controllers may be hidden.", word="hidden"),
    Requirement("spec 4.5", "Endpoints and controllers may be tagged.", word="tagged"),
    Requirement("spec 4.5", "Parameters, responses and security are declared per endpoint.", word="security"),
    Requirement("spec 4.5", "Rate limit headers and X-Workspace-ID are documented on each endpoint.", word="documented"),
    Requirement("spec 4.6", "A page has data, links and meta."),
    Requirement("spec 5.1", "Bearer and X-API-Key are accepted on every endpoint.", alternative="D-22"),
    Requirement("spec 5.2", "The format of API keys, their scopes, and the error without one."),
    Requirement("spec 5.3", "The format of agent keys, their permissions, and the seven steps in order."),
    Requirement("spec 6.1", "Stored, recalled and re-indexed memories are events; jobs are retried after 10, 60 and 300 s."),
    Requirement("spec 6.2", "A delivery is signed; a receiver refuses a mismatch with 401.", word="401"),
    Requirement("spec 6.2", "A failed delivery is retried at most 3 times, 60 seconds apart.", word="60", alternative="D-81"),
    Requirement("spec 6.1", "A stored memory updates training data.", word="training"),
    Requirement("spec 7", "The statuses and codes of the table."),
    Requirement("spec 8", "The tiers, the headers of the rate limit, and the half-lives."),
    Requirement("spec 9", "Paths carry v1.", untested="The paths are in the tables of the routes, which every test of a route calls."),
)

DECISIONS = (
    Requirement("D-01", "Processes of one host share the data folder, and see each other's commits."),
    Requirement("D-02", "Settings are read once; an invalid one stops the start with a one-line error."),
    Requirement("D-03", "The first start creates a workspace and two keys, once."),
    Requirement("D-04", "The commands, their JSON and their exit codes."),
    Requirement("D-05", "healthz and readyz need no key; metrics need platform:metrics, or a port of the loopback."),
    Requirement("D-06", "make has its targets.", untested="Developers run the Makefile; the targets in the docs are compared with it."),
    Requirement("D-07", "A sealed value opens only with its key and in its column; keys change without a gap."),
    Requirement("D-08", "A deprecated server is marked as such.", alternative="D-33"),
    Requirement("D-09", "Foreign hosts and cross-site Basic are refused."),
    Requirement("D-10", "One body for every error."),
    Requirement("D-11", "Every response, log line and span has a request id."),
    Requirement("D-12", "Limits of pages; links use the configured address."),
    Requirement("D-13", "Ids are UUIDs of version 7; times end with Z."),
    Requirement("D-14", "A request with an Idempotency-Key runs once; its repetition returns the same response."),
    Requirement("D-15", "X-Workspace-ID must be the key's."),
    Requirement("D-16", "Bodies are limited in size, depth and kind; heads, slow clients and connections in time and number."),
    Requirement("D-17", "Memories, backlog and disk use are limited."),
    Requirement("D-20", "bcrypt runs once per key; the row is read on every request."),
    Requirement("D-21", "An extension activates an expired key; a revoked key stays revoked."),
    Requirement("D-22", "Three headers for both kinds of keys; two different keys are rejected."),
    Requirement("D-23", "One grammar of scopes; wildcards exclude platform scopes; allow-lists apply to every query."),
    Requirement("D-24", "A key can grant only what it has."),
    Requirement("D-25", "Test keys act in a sandbox."),
    Requirement("D-26", "Grace of 24 h, 0 to 720; no rotation in it."),
    Requirement("D-27", "Rate limits are exact, and counted locally while the counter is down."),
    Requirement("D-28", "The client's address, and IP lists."),
    Requirement("D-29", "A row for each call, and sums by day."),
    Requirement("D-30", "Server ids, tool names, and uris of resources."),
    Requirement("D-31", "servers.json is reloaded when it changes."),
    Requirement("D-32", "Sessions with upstreams; no orphan processes."),
    Requirement("D-32", "Replicas: each call goes to the least busy session.", "replica"),
    Requirement("D-32", "A breaker for crash loops.", "breaker"),
    Requirement("D-32", "kill -9 of Rookery leaves no child process.", "kill -9"),
    Requirement("D-33", "The operator sets status, Rookery measures health; disabled is 403; a stop applies to the next call."),
    Requirement("D-34", "Statuses, error codes and time-outs of a call."),
    Requirement("D-34", "A call with progress events.", word="stream"),
    Requirement("D-34", "A tool that requests input before its result.", word="input_required"),
    Requirement("D-34", "Results of read-only tools are cached.", word="cache_s"),
    Requirement("D-34", "A disconnected caller cancels the call upstream.", word="leaves"),
    Requirement("D-35", "Discovery of tool servers by permission, with configured addresses; set-ups of clients."),
    Requirement("D-37", "Tools are found by meaning and by words; each server has an OpenAPI document."),
    Requirement("D-36", "Rookery's MCP endpoint supports both protocol versions, with its own keys."),
    Requirement("D-38", "A row for each tool call."),
    Requirement("D-38", "Statistics over the rows, by any field and range.", word="p50"),
    Requirement("D-38", "Arguments are stored only if configured, redacted.", word="arguments"),
    Requirement("D-38", "An X-Session-ID that is unknown or ended is rejected.", word="unknown or ended"),
    Requirement("D-40", "Required fields of remember, and its defaults."),
    Requirement("D-41", "A second supersede, and the remains of the old memory."),
    Requirement("D-42", "Parameters and response of recall."),
    Requirement("D-43", "One visibility rule for all reads."),
    Requirement("D-44", "The order of recalled memories in all three modes."),
    Requirement("D-45", "Decay by half-lives."),
    Requirement("D-46", "Hits of indexes are checked against the records."),
    Requirement("D-47", "Feedback moves confidence by bounded steps, once a recall and once a day for one key."),
    Requirement("D-48", "An agent's memories by confidence, and its boot context, within one token budget."),
    Requirement("D-49", "Query text is data; phrases, minus, highlights."),
    Requirement("D-50", "Batches, lists, changes, archive and restore."),
    Requirement("D-51", "Indexing is a durable job."),
    Requirement("D-52", "The memories that each command changes."),
    Requirement("D-53", "A session's memory lives seven days."),
    Requirement("D-53", "It is archived when its Rookery session completes or fails, or promoted.", word="promote"),
    Requirement("D-54", "Vectors of another model are not compared; the old ones are searched until all new ones exist."),
    Requirement("D-55", "Long contents are split into chunks; the best chunk counts."),
    Requirement("D-57", "A workspace stores training rows if enabled; they are deleted with their memory.", word="rows"),
    Requirement("D-57", "`brain export-training` writes them.", word="export-training"),
    Requirement("D-60", "Plans, phases and tasks with their fields; statuses follow one table.", word="table"),
    Requirement("D-60", "Blocked and ready are derived; a dependency cycle is rejected.", word="cycle"),
    Requirement("D-60", "A plan with open phases is completed only by force.", word="force"),
    Requirement("D-60", "An archived plan is read-only until it is restored.", word="archived"),
    Requirement("D-61", "A task is claimed once, also by concurrent agents.", word="once"),
    Requirement("D-61", "A lease expires unless heartbeats extend it.", word="lease"),
    Requirement("D-61", "After more than five lost leases a task fails.", word="five"),
    Requirement("D-61", "claim-next returns the best ready task, or the reason why none is ready.", word="why"),
    Requirement("D-62", "A new session receives the context that its agent needs."),
    Requirement("D-62", "One open session for each agent and plan, unless taken over.", word="takeover"),
    Requirement("D-62", "A session without activity for 24 hours is abandoned.", word="abandoned"),
    Requirement("D-62", "Event numbers have no gaps.", word="gap"),
    Requirement("D-62", "Events are streamed as they happen, after Last-Event-ID.", word="last-event-id"),
    Requirement("D-62", "A hand-off is offered until it is acknowledged.", word="offered"),
    Requirement("D-64", "A version mismatch is 412; every change is an event."),
    Requirement("D-65", "The routes of plans under both prefixes, with their permissions."),
    Requirement("D-70", "What is known to be sent is never sent again, also after kill -9.", word="kill"),
    Requirement("D-70", "The audience is fixed when a campaign is sent.", word="audience"),
    Requirement("D-70", "A missing variable is found before the first message.", word="variable"),
    Requirement("D-70", "A fault common to all addresses pauses the campaign.", word="pause"),
    Requirement("D-71", "Concurrent requests cannot exceed a budget.", word="budget"),
    Requirement("D-71", "Without a provider, generation is not configured, and nothing is invented.", word="not_configured"),
    Requirement("D-71", "A generation that has ended cannot be cancelled.", word="cancel"),
    Requirement("D-72", "Short texts have no score, and every refusal has its reason.", word="reason"),
    Requirement("D-72", "Each verdict has its false-positive rate and the address of its model card.", word="model card"),
    Requirement("D-72", "A batch scores as single requests do, in their order.", word="batch"),
    Requirement("D-73", "The tokens of a remote embedder are charged to the author of each memory.", word="remote embedder"),
    Requirement("D-80", "An endpoint's secret is shown once; the old one stays valid beside a new one.", word="grace"),
    Requirement("D-80", "A test event goes to one endpoint only.", word="test"),
    Requirement("D-80", "Failed and held deliveries can be resent.", word="resend-failed"),
    Requirement("D-81", "Deliveries are signed in both ways.", word="signature"),
    Requirement("D-90", "A key signs in to the console; its cookie holds the key encrypted.", word="encrypted"),
    Requirement("D-90", "A page of another site cannot submit a form.", word="page of this server"),
    Requirement("D-90", "Calls of the console have a limit of their own.", word="limit"),
    Requirement("D-91", "verify_webhook accepts signatures by any of the secrets."),
    Requirement("D-82", "Users' addresses are checked, and connections use the checked address."),
    Requirement("D-83", "The document equals the mounted routes.", word="exactly"),
    Requirement("D-83", "Each operation has a unique name.", word="unique"),
    Requirement("D-63", "Values are inserted once, and the result is validated.", word="inserted"),
    Requirement("D-63", "Unknown and missing variables are rejected by name.", word="missing"),
    Requirement("D-63", "Each content is a version.", word="version"),
    Requirement("D-63", "Eight templates ship read-only; they can be copied.", word="copied"),
    Requirement("D-63", "Files of templates are checked and added by command.", word="command"),
    Requirement("D-92", "The memory is a built-in tool server."),
    Requirement("D-92", "Agent work is a built-in tool server; each tool needs the permission of its REST route.", word="route"),
    Requirement("D-93", "Hooks need sessions.write; memories, tasks and the hand-off need the scopes of their own routes.", word="scopes"),
    Requirement("D-93", "A turn that contains NUL or half an emoji is recorded.", word="emoji"),
    Requirement("D-94", "Edits keep comments and everything else of the file.", word="comments"),
    Requirement("D-94", "An entry is recognized by where it reads its key.", word="marker"),
    Requirement("D-94", "A file that cannot be parsed is left alone.", word="parsed"),
)

REQUIREMENTS = (*SPEC, *DECISIONS)

SECTIONS = frozenset("1 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8 3.1 3.2 3.3 3.4 4.1 4.2 4.3 4.4 4.5 4.6 5.1 5.2 5.3 6.1 6.2 7 8 9".split()) | {
    "2",
    "3",
    "4",
    "5",
    "6",
}
"""Every section of the specification."""
