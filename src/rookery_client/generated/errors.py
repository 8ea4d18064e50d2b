"""
Errors of the API, by code.

Written by `make client` from the declarations of the operations. Change those, not this file.
"""

# fmt: off

from __future__ import annotations

from rookery_client.client_errors import ApiError, AuthenticationError, ClientError, ConflictError, ForbiddenError, InvalidRequestError, NotFoundError, RateLimitError, ServerError


class AmbiguousName(ClientError):
    """Several tool servers have this resource. Use one of `candidates`."""


class HostNotAllowed(ClientError):
    """The `Host` header is not one of the server's addresses; see `ROOKERY_ALLOWED_HOSTS`."""


class InvalidArguments(ClientError):
    """The arguments do not match the tool's inputSchema."""


class InvalidJson(ClientError):
    """The body is not JSON."""


class InvalidRequest(ClientError):
    """
    The request is not valid HTTP. The body of a tool call does not have the required form. A preflight request with an origin, a
    method or headers that are not allowed.
    """


class KeyExpired(AuthenticationError):
    """The key has expired."""


class KeyRevoked(AuthenticationError):
    """The key is revoked, or suspended, as the message says."""


class Unauthorised(AuthenticationError):
    """
    No key, two different keys, or an unknown key. Deleted keys and keys past their grace period are unknown. The message does not
    reveal whether a key exists.
    """


class CrossSite(ForbiddenError):
    """A browser sent Basic credentials for a page of another site."""


class Disabled(ForbiddenError):
    """The operator switched off or stopped the server or tool."""


class IpNotAllowed(ForbiddenError):
    """The key may not be used from this address."""


class PermissionDenied(ForbiddenError):
    """
    The key lacks a permission that can be granted (`required_permission`), or its list excludes what is named (`not_in_list`).
    `X-Workspace-ID` is another workspace than the key's (`field`). The key would grant what it does not have; `field` names the
    setting.
    """


class ScopeMissing(ForbiddenError):
    """The API key lacks the scope."""


class TestKeyRefused(ForbiddenError):
    """A test key called a tool that is not read-only, on a server without `sandbox`."""


class LinkInvalid(NotFoundError):
    """A link to a public page of notifications was changed, or is not one of this server."""


class NotFound(NotFoundError):
    """No route has this path."""


class PromptNotFound(NotFoundError):
    """The server has no such prompt."""


class ResourceNotFound(NotFoundError):
    """
    The memory or other resource does not exist, or belongs to another workspace. The error is the same if another tenant has it.
    """


class ServerNotFound(NotFoundError):
    """The tool server does not exist."""


class ToolNotFound(NotFoundError):
    """The server has no such tool."""


class MethodNotAllowed(ClientError):
    """The path does not support this method."""


class RequestTimeout(ClientError):
    """
    The head did not arrive within 30 s, or the body paused for 30 s or was slower than 8 KiB a second. The connection is closed.
    """


class AlreadySuperseded(ConflictError):
    """Another memory replaced this one first."""


class AnswerNotKept(ConflictError):
    """The request with this Idempotency-Key succeeded, and its answer was too large to store."""


class CampaignAlreadySent(ConflictError):
    """The campaign was started before and is not sent a second time."""


class CampaignNotEditable(ConflictError):
    """The campaign is neither a draft nor scheduled, so it cannot be changed; duplicate it."""


class Conflict(ConflictError):
    """The state of the resource does not allow the operation."""


class DatabaseTaken(ConflictError):
    """The database or `records.db` that should get the records has some already. Only commands return this error."""


class FileTaken(ConflictError):
    """A backup never overwrites a file. Only commands return this error."""


class FolderTaken(ConflictError):
    """A backup is restored only into an empty folder. Only commands return this error."""


class GenerationCancelled(ConflictError):
    """The generation was cancelled while its caller waited for the answer."""


class IdempotencyInProgress(ConflictError):
    """A request with this Idempotency-Key is running."""


class KeyInGrace(ConflictError):
    """The key was already rotated; rotate its successor."""


class LeaseLost(ConflictError):
    """The lease of the `claim_token` has ended, or the token or session belongs to another claim."""


class MaxMemoriesReached(ConflictError):
    """The workspace has `ROOKERY_MAX_MEMORIES` memories. Retrying does not help; deleting memories does."""


class NameTaken(ConflictError):
    """The name is in use and must be unique."""


class NoHandoffOffered(ConflictError):
    """The session acknowledged a hand-off that it was not offered."""


class NoLogin(ConflictError):
    """The entry of the tool server does not use a login."""


class PhaseBlocked(ConflictError):
    """The phase waits for other phases."""


class PhaseClosed(ConflictError):
    """The phase is completed, skipped or on hold, so no work can begin; or it is closed, so no task can be added."""


class PhaseHasOpenTasks(ConflictError):
    """A phase with open tasks can be completed only with `force`."""


class PlanArchived(ConflictError):
    """An archived plan is read-only; restore it first."""


class PlanHasOpenPhases(ConflictError):
    """A plan with open phases can be completed only with `force`."""


class PlanNotActive(ConflictError):
    """The plan is paused or completed, so no work can begin or be added."""


class RecordsInUse(ConflictError):
    """A server, a worker or another client uses the records that are to be moved. Only commands return this error."""


class SecretAlreadyShown(ConflictError):
    """The request with this Idempotency-Key succeeded, and its answer contained a secret."""


class SessionActive(ConflictError):
    """The agent has an open session on the plan, or the session to resume is active. Continue it, or send `takeover`."""


class SessionEnded(ConflictError):
    """The session has ended; another one can continue it."""


class SessionFull(ConflictError):
    """The session has 100,000 events or 64 MiB of events; end it and start another."""


class SessionResumed(ConflictError):
    """Another session already continues this one."""


class SlugTaken(ConflictError):
    """The slug is in use by another plan or plan template of the workspace. The slug is in use by another prompt template."""


class TaskBlocked(ConflictError):
    """The task or its phase waits for others."""


class TaskClaimed(ConflictError):
    """Another worker holds the task."""


class TemplateReadOnly(ConflictError):
    """A built-in template cannot be changed; copy it under another slug."""


class TooMany(ConflictError):
    """The plan has the maximum number of phases, tasks or checkpoints."""


class WrongCampaignStatus(ConflictError):
    """The status of the campaign does not allow the action."""


class WrongTransition(ConflictError):
    """The status cannot change in this way."""


class LinkExpired(ClientError):
    """A link to a public page of notifications has expired, or its subscriber was deleted."""


class PreconditionFailed(ClientError):
    """`If-Match` is not the current version, or the path has no version."""


class PayloadTooLarge(ClientError):
    """The body is larger than the route allows; the rest was not read."""


class UnsupportedMediaType(ClientError):
    """
    `Content-Type` is not JSON, or for an import neither CSV nor JSON Lines. A body without `Content-Type` is read as JSON, always
    as UTF-8.
    """


class AddressRefused(InvalidRequestError):
    """
    A login at a tool server uses an address that is not allowed; see `ROOKERY_EGRESS_ALLOW`. For the `url` of a webhook or server,
    the code is `validation_error` with `errors.url`.
    """


class ArchiveUnfit(InvalidRequestError):
    """The file is not a backup, incomplete, damaged, or from a newer Rookery. Only commands return this error."""


class IdempotencyMismatch(InvalidRequestError):
    """The Idempotency-Key was used with another body or query; nothing was done."""


class LoginFailed(InvalidRequestError):
    """A login at a tool server failed; the message explains what to correct."""


class ModelNotPriced(InvalidRequestError):
    """A budget applies to the generation, and its model has no price in `ROOKERY_GENERATION_PRICES`."""


class NotEmbeddable(InvalidRequestError):
    """The embedder works, but returns no vector for this question, and the mode is `semantic`."""


class ProviderRefused(InvalidRequestError):
    """The provider of the language model rejects the request, for example because it is too long for the model."""


class SessionNotOpen(InvalidRequestError):
    """`X-Session-ID` is not an open agent session of the workspace."""


class ValidationError(InvalidRequestError):
    """A field of the body or query, or the header Idempotency-Key, is invalid."""


class BacklogFull(RateLimitError):
    """`ROOKERY_MAX_BACKLOG` memories of the workspace wait for indexing."""


class BudgetExhausted(RateLimitError):
    """Less is left of the daily or monthly budget of the key or of the workspace than the generation may cost."""


class DeliveriesFull(RateLimitError):
    """The workspace has the maximum number of waiting webhook deliveries, so no event can be resent or tested."""


class GenerationQueueFull(RateLimitError):
    """10,000 generations of the workspace wait or run."""


class RateLimited(RateLimitError):
    """
    The limit of the key, one of its tool limits, or the budget of an address for wrong keys (10 a minute) is exceeded. The last one
    applies to every route that takes a key, and its answer has no `X-RateLimit` headers.
    """


class ServerBusy(RateLimitError):
    """
    The tool server has the maximum number of running and waiting calls, or the call waited for others as long as it may take
    itself.
    """


class TooManySessions(RateLimitError):
    """
    All MCP sessions of the older protocol are in use: 100 of a key, 250 of a workspace or 1,000 of the process, the maximum.
    """


class TooManyStreams(RateLimitError):
    """The workspace follows 200 sessions in this process, which is the maximum."""


class HeadersTooLarge(ClientError):
    """The request line and headers are larger than 64 KiB."""


class InternalError(ServerError):
    """An error in Rookery. The log has it under the same request id."""


class PromptError(ServerError):
    """The tool server failed to return the prompt."""


class ResourceError(ServerError):
    """The tool server failed to return a resource that it lists."""


class ResultTooLarge(ServerError):
    """The result of the tool has more than 10 MiB."""


class ServerHttpError(ServerError):
    """
    The tool server answered the call with an HTTP error status, a redirect that is not followed, or without a result. Only this
    call failed.
    """


class ServerUnavailable(ServerError):
    """No session with the tool server could be opened."""


class ToolExecutionError(ServerError):
    """The tool returned an error."""


class ToolTimeout(ServerError):
    """The tool neither finished nor reported progress in time."""


class JudgementInvalid(ServerError):
    """The language model's answer to `judge` is no judgement."""


class ProviderAccessDenied(ServerError):
    """The provider of the language model rejects the key or the account of the operator."""


class ProviderResponseInvalid(ServerError):
    """The provider's answer is no chat completion, or is empty. It is not requested again."""


class ReceiverUnreachable(ServerError):
    """The receiver of a webhook did not answer. Appears only in the delivery log, not in answers."""


class ResponseSchemaMismatch(ServerError):
    """No answer of the language model matched the JSON schema of the request."""


class StreamInterrupted(ServerError):
    """The provider's answer ended in the middle. It is not requested again."""


class ChannelNotReady(ServerError):
    """
    A channel of notifications cannot work as configured. The reason is also in `status_reason` of the campaign that it paused.
    """


class EngineUnavailable(ServerError):
    """An engine did not answer; the same request may succeed later."""


class GenerationNotConfigured(ServerError):
    """The operator has not set `ROOKERY_GENERATION`. No language model is set that could judge."""


class ProviderRateLimited(ServerError):
    """The provider still answered 429 after all retries."""


class ProviderUnavailable(ServerError):
    """No connection to the provider, a time-out, or a 5xx after all retries."""


class ServerFull(ServerError):
    """
    `ROOKERY_MAX_CONNECTIONS` connections have running requests, or half as many from your address. The connection is closed.
    """


class StorageFull(ServerError):
    """The disk has less free space than `ROOKERY_MIN_FREE_DISK_MB`; reads still work."""


CLASSES: dict[str, type[ApiError]] = {
    "ambiguous_name": AmbiguousName,
    "host_not_allowed": HostNotAllowed,
    "invalid_arguments": InvalidArguments,
    "invalid_json": InvalidJson,
    "invalid_request": InvalidRequest,
    "key_expired": KeyExpired,
    "key_revoked": KeyRevoked,
    "unauthorised": Unauthorised,
    "cross_site": CrossSite,
    "disabled": Disabled,
    "ip_not_allowed": IpNotAllowed,
    "permission_denied": PermissionDenied,
    "scope_missing": ScopeMissing,
    "test_key_refused": TestKeyRefused,
    "link_invalid": LinkInvalid,
    "not_found": NotFound,
    "prompt_not_found": PromptNotFound,
    "resource_not_found": ResourceNotFound,
    "server_not_found": ServerNotFound,
    "tool_not_found": ToolNotFound,
    "method_not_allowed": MethodNotAllowed,
    "request_timeout": RequestTimeout,
    "already_superseded": AlreadySuperseded,
    "answer_not_kept": AnswerNotKept,
    "campaign_already_sent": CampaignAlreadySent,
    "campaign_not_editable": CampaignNotEditable,
    "conflict": Conflict,
    "database_taken": DatabaseTaken,
    "file_taken": FileTaken,
    "folder_taken": FolderTaken,
    "generation_cancelled": GenerationCancelled,
    "idempotency_in_progress": IdempotencyInProgress,
    "key_in_grace": KeyInGrace,
    "lease_lost": LeaseLost,
    "max_memories_reached": MaxMemoriesReached,
    "name_taken": NameTaken,
    "no_handoff_offered": NoHandoffOffered,
    "no_login": NoLogin,
    "phase_blocked": PhaseBlocked,
    "phase_closed": PhaseClosed,
    "phase_has_open_tasks": PhaseHasOpenTasks,
    "plan_archived": PlanArchived,
    "plan_has_open_phases": PlanHasOpenPhases,
    "plan_not_active": PlanNotActive,
    "records_in_use": RecordsInUse,
    "secret_already_shown": SecretAlreadyShown,
    "session_active": SessionActive,
    "session_ended": SessionEnded,
    "session_full": SessionFull,
    "session_resumed": SessionResumed,
    "slug_taken": SlugTaken,
    "task_blocked": TaskBlocked,
    "task_claimed": TaskClaimed,
    "template_read_only": TemplateReadOnly,
    "too_many": TooMany,
    "wrong_campaign_status": WrongCampaignStatus,
    "wrong_transition": WrongTransition,
    "link_expired": LinkExpired,
    "precondition_failed": PreconditionFailed,
    "payload_too_large": PayloadTooLarge,
    "unsupported_media_type": UnsupportedMediaType,
    "address_refused": AddressRefused,
    "archive_unfit": ArchiveUnfit,
    "idempotency_mismatch": IdempotencyMismatch,
    "login_failed": LoginFailed,
    "model_not_priced": ModelNotPriced,
    "not_embeddable": NotEmbeddable,
    "provider_refused": ProviderRefused,
    "session_not_open": SessionNotOpen,
    "validation_error": ValidationError,
    "backlog_full": BacklogFull,
    "budget_exhausted": BudgetExhausted,
    "deliveries_full": DeliveriesFull,
    "generation_queue_full": GenerationQueueFull,
    "rate_limited": RateLimited,
    "server_busy": ServerBusy,
    "too_many_sessions": TooManySessions,
    "too_many_streams": TooManyStreams,
    "headers_too_large": HeadersTooLarge,
    "internal_error": InternalError,
    "prompt_error": PromptError,
    "resource_error": ResourceError,
    "result_too_large": ResultTooLarge,
    "server_http_error": ServerHttpError,
    "server_unavailable": ServerUnavailable,
    "tool_execution_error": ToolExecutionError,
    "tool_timeout": ToolTimeout,
    "judgement_invalid": JudgementInvalid,
    "provider_access_denied": ProviderAccessDenied,
    "provider_response_invalid": ProviderResponseInvalid,
    "receiver_unreachable": ReceiverUnreachable,
    "response_schema_mismatch": ResponseSchemaMismatch,
    "stream_interrupted": StreamInterrupted,
    "channel_not_ready": ChannelNotReady,
    "engine_unavailable": EngineUnavailable,
    "generation_not_configured": GenerationNotConfigured,
    "provider_rate_limited": ProviderRateLimited,
    "provider_unavailable": ProviderUnavailable,
    "server_full": ServerFull,
    "storage_full": StorageFull,
}


__all__ = [
    "AddressRefused",
    "AlreadySuperseded",
    "AmbiguousName",
    "AnswerNotKept",
    "ArchiveUnfit",
    "BacklogFull",
    "BudgetExhausted",
    "CampaignAlreadySent",
    "CampaignNotEditable",
    "ChannelNotReady",
    "Conflict",
    "CrossSite",
    "DatabaseTaken",
    "DeliveriesFull",
    "Disabled",
    "EngineUnavailable",
    "FileTaken",
    "FolderTaken",
    "GenerationCancelled",
    "GenerationNotConfigured",
    "GenerationQueueFull",
    "HeadersTooLarge",
    "HostNotAllowed",
    "IdempotencyInProgress",
    "IdempotencyMismatch",
    "InternalError",
    "InvalidArguments",
    "InvalidJson",
    "InvalidRequest",
    "IpNotAllowed",
    "JudgementInvalid",
    "KeyExpired",
    "KeyInGrace",
    "KeyRevoked",
    "LeaseLost",
    "LinkExpired",
    "LinkInvalid",
    "LoginFailed",
    "MaxMemoriesReached",
    "MethodNotAllowed",
    "ModelNotPriced",
    "NameTaken",
    "NoHandoffOffered",
    "NoLogin",
    "NotEmbeddable",
    "NotFound",
    "PayloadTooLarge",
    "PermissionDenied",
    "PhaseBlocked",
    "PhaseClosed",
    "PhaseHasOpenTasks",
    "PlanArchived",
    "PlanHasOpenPhases",
    "PlanNotActive",
    "PreconditionFailed",
    "PromptError",
    "PromptNotFound",
    "ProviderAccessDenied",
    "ProviderRateLimited",
    "ProviderRefused",
    "ProviderResponseInvalid",
    "ProviderUnavailable",
    "RateLimited",
    "ReceiverUnreachable",
    "RecordsInUse",
    "RequestTimeout",
    "ResourceError",
    "ResourceNotFound",
    "ResponseSchemaMismatch",
    "ResultTooLarge",
    "ScopeMissing",
    "SecretAlreadyShown",
    "ServerBusy",
    "ServerFull",
    "ServerHttpError",
    "ServerNotFound",
    "ServerUnavailable",
    "SessionActive",
    "SessionEnded",
    "SessionFull",
    "SessionNotOpen",
    "SessionResumed",
    "SlugTaken",
    "StorageFull",
    "StreamInterrupted",
    "TaskBlocked",
    "TaskClaimed",
    "TemplateReadOnly",
    "TestKeyRefused",
    "TooMany",
    "TooManySessions",
    "TooManyStreams",
    "ToolExecutionError",
    "ToolNotFound",
    "ToolTimeout",
    "Unauthorised",
    "UnsupportedMediaType",
    "ValidationError",
    "WrongCampaignStatus",
    "WrongTransition",
]
