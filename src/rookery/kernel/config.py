"""
Settings: frozen, read once at the start, with one URL per engine.

Environment variables `ROOKERY_…` override `rookery.toml`, which overrides the defaults. The file is in the data folder, or where
`ROOKERY_CONFIG` points. A secret may be in a file that `ROOKERY_…_FILE` names.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from platformdirs import user_data_path

from rookery.kernel.data_folder import SETTINGS_FILE, read_config_file
from rookery.kernel.errors import WrongSettings
from rookery.kernel.money import CURRENCIES, DEFAULT_CURRENCY
from rookery.kernel.secret import Secret, parse_new_secret_key, parse_secret_key
from rookery.kernel.sentences import find_nearest

D = TypeVar("D")

_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_BASE_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")
_CONTACT = re.compile(r"mailto:[!-?A-~]+@[!-?A-~]+|https://[!-~]+")
ModelPrices = tuple[tuple[str, int, int] | tuple[str, int, int, int], ...]
"""Models with their prices of input, output and, optionally, cached input tokens, in billionths per token."""

_PRICE = re.compile(r"([!-<>-~]{1,200})=([0-9]{1,6}(?:\.[0-9]{1,3})?)/([0-9]{1,6}(?:\.[0-9]{1,3})?)(?:/([0-9]{1,6}(?:\.[0-9]{1,3})?))?")
_EMBEDDING_PRICE = re.compile(r"([!-<>-~]{1,200})=([0-9]{1,6}(?:\.[0-9]{1,3})?)")
_AMOUNT = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6})?")
_HALF_LIFE = re.compile(r"([a-z][a-z0-9_-]{0,63})=(?:([1-9][0-9]{0,5})|never)")


def _parse_text(raw: object) -> str:
    if not isinstance(raw, str) or not raw or "\x00" in raw:
        msg = "must be a non-empty text"
        raise ValueError(msg)
    return raw


def _parse_address(raw: object) -> Secret:
    return Secret(_parse_text(raw))


def _parse_secret_key(raw: object) -> Secret:
    return parse_secret_key(_parse_text(raw))


def _parse_new_secret_key(raw: object) -> Secret:
    return parse_new_secret_key(_parse_text(raw))


def _parse_path(raw: object) -> Path:
    try:
        path = Path(_parse_text(raw)).expanduser().absolute()
    except RuntimeError:
        msg = "must be a path; this host has no such user after ~"
        raise ValueError(msg) from None
    try:
        path.exists()
    except OSError as error:  # a name that is too long
        msg = f"must be a path that this host can use: {error.strerror}"
        raise ValueError(msg) from None
    return path


def _parse_bool(raw: object) -> bool:
    value = raw if isinstance(raw, bool) else _BOOLEANS.get(raw.lower()) if isinstance(raw, str) else None
    if value is None:
        msg = "must be true or false"
        raise ValueError(msg)
    return value


def _parse_int(raw: object, *, between: tuple[int, int]) -> int:
    minimum, maximum = between
    try:
        number = int(raw) if isinstance(raw, (str, int)) and not isinstance(raw, bool) else None
    except ValueError:
        number = None
    if number is None or not minimum <= number <= maximum:
        msg = f"must be a whole number from {minimum} to {maximum}"
        raise ValueError(msg)
    return number


def _parse_choice(raw: object, *, choices: tuple[str, ...]) -> str:
    if raw not in choices:
        msg = f"must be one of {', '.join(choices)}"
        raise ValueError(msg)
    return cast("str", raw)


def _parse_list(raw: object) -> tuple[str, ...]:
    if isinstance(raw, str):
        return tuple(part.strip() for part in raw.split(",") if part.strip())
    if isinstance(raw, list) and all(isinstance(part, str) for part in cast("list[object]", raw)):
        return tuple(cast("list[str]", raw))
    msg = "must be a list of texts, or one text with commas between them"
    raise ValueError(msg)


def _parse_half_lives(raw: object) -> tuple[tuple[str, int | None], ...]:
    requirement = "must be memory types with a number of days or never, such as research=90,plan=never"
    return tuple((match[1], int(match[2]) if match[2] else None) for match in _match_parts(_HALF_LIFE, raw, requirement))


def _parse_prices(raw: object) -> ModelPrices:
    """Return prices in billionths per token: a price of 1 per million tokens is 1,000 billionths."""
    requirement = (
        "must be models with their prices per million input, output and cached input tokens, such as gpt-5-mini=0.25/2/0.025,*=1/3"
    )
    matches = _match_parts(_PRICE, raw, requirement)
    _require_distinct_models(matches)
    return tuple(_to_price(match) for match in matches)


def _to_price(match: re.Match[str]) -> tuple[str, int, int] | tuple[str, int, int, int]:
    input_nanos, output_nanos = int(Decimal(match[2]) * 1000), int(Decimal(match[3]) * 1000)
    if match[4] is None:
        return match[1], input_nanos, output_nanos
    return match[1], input_nanos, output_nanos, int(Decimal(match[4]) * 1000)


def _parse_embedding_prices(raw: object) -> tuple[tuple[str, int], ...]:
    """Return prices in billionths per token, as `_parse_prices` does."""
    requirement = "must be models with their prices per million tokens, such as text-embedding-3-small=0.02,*=0.1"
    matches = _match_parts(_EMBEDDING_PRICE, raw, requirement)
    _require_distinct_models(matches)
    return tuple((match[1], int(Decimal(match[2]) * 1000)) for match in matches)


def _require_distinct_models(matches: list[re.Match[str]]) -> None:
    if len({match[1] for match in matches}) < len(matches):
        msg = "must not name a model twice"
        raise ValueError(msg)


def _parse_currency(raw: object) -> str:
    code = raw.strip().upper() if isinstance(raw, str) else ""
    if code not in CURRENCIES:
        nearest = find_nearest(code, sorted(CURRENCIES)) if code else None
        msg = "must be a code of ISO 4217, such as USD, EUR or JPY" + (f"; the nearest is {nearest}" if nearest else "")
        raise ValueError(msg)
    return code


def _parse_budget(raw: object) -> int:
    """Return an amount in billionths of the currency of the prices."""
    text = str(raw) if isinstance(raw, (str, int, float)) and not isinstance(raw, bool) else ""
    requirement = "must be an amount in the currency of the prices, such as 5 or 0.25, with at most 6 decimals"
    return int(Decimal(_match(_AMOUNT, text, requirement)[0]) * 10**9)


def _parse_base_url(raw: object) -> str:
    return _match(_BASE_URL, _parse_text(raw).rstrip("/"), "must be a URL such as https://rookery.example.org")[0]


def _parse_contact(raw: object) -> str:
    return _match(_CONTACT, _parse_text(raw), "must be a mailto: or https: address, such as mailto:admin@example.org")[0]


def _match_parts(pattern: re.Pattern[str], raw: object, requirement: str) -> list[re.Match[str]]:
    return [_match(pattern, part, requirement) for part in _parse_list(raw)]


def _match(pattern: re.Pattern[str], text: str, requirement: str) -> re.Match[str]:
    """Return the match of the whole text, or raise a ValueError with *requirement*."""
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(requirement)
    return match


def _setting(default: D, description: str, *, parse: Callable[[object], object] | None = None, between: tuple[int, int] | None = None) -> D:
    """
    Return a dataclass field. Its description is that in docs/reference.

    Args:
        parse: Returns the value of a text or of a value of rookery.toml; by default, the parser of the type.
        between: The lowest and the highest value of a whole number.
    """
    return field(default=default, metadata={"description": description, "parse": parse, "between": between})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the operator. Each is `ROOKERY_` and its name in capitals, or the name itself in rookery.toml."""

    data_dir: Path = _setting(user_data_path("rookery"), "The folder that holds all data.")
    host: str = _setting("127.0.0.1", "The address on which the server listens.")
    port: int = _setting(8400, "The port on which the server listens; 0 picks a free one.", between=(0, 65535))
    environment: Literal["development", "production"] = _setting(
        "development", "Hides API docs and discovery pages from requests without a key in production, unless other settings show them."
    )
    base_url: str | None = _setting(None, "The public URL of the tool-server API.", parse=_parse_base_url)
    api_url: str | None = _setting(None, "The public URL of the platform and memory API.", parse=_parse_base_url)
    mcp_url: str | None = _setting(None, "The public URL of the catalogue and the agent API.", parse=_parse_base_url)
    database_url: Secret = _setting(Secret("embedded:"), "The record store: embedded: or postgresql://…")
    database_replica: Secret | None = _setting(
        None, "A read replica of a record store in PostgreSQL, postgresql://…, which serves lists and searches."
    )
    database_replica_max_lag_s: int = _setting(5, "Lag in seconds above which the read replica is not used.", between=(1, 3600))
    postgres_notify: bool = _setting(
        True, "Wake up other processes by LISTEN and NOTIFY of PostgreSQL; without it, they see changes at their next poll."
    )
    vectors: Secret = _setting(Secret("embedded:"), "The vector index: embedded:, postgresql://… or qdrant://…")
    texts: Secret = _setting(Secret("embedded:"), "The full-text index: embedded:, postgresql://…, opensearch://… or elasticsearch://…")
    counters: Secret = _setting(Secret("embedded:"), "The rate limit counters: embedded: or redis[s]://…")
    embedder: Secret = _setting(Secret("embedded:"), "The model that turns text into vectors.")
    embedder_previous: Secret | None = _setting(
        None, "The previous embedder, which answers searches until `rookery brain:reindex --stale` has finished."
    )
    vector_dimension: int = _setting(768, "The number of dimensions of the vectors that an embedding service returns.", between=(1, 16_384))
    generation: Secret | None = _setting(None, "The language model that generates content.")
    verify_ssl: bool = _setting(True, "Verify the certificates of engines that are reached by TLS.")
    secret_key: Secret | None = _setting(
        None,
        "The key that encrypts confidential values in the record store; by default secret.key in the data folder.",
        parse=_parse_new_secret_key,
    )
    secret_key_previous: Secret | None = _setting(
        None, "The previous secret key, needed until `rookery secrets rotate` has finished.", parse=_parse_secret_key
    )
    servers: Path | None = _setting(None, "The file that lists the tool servers; by default servers.json in the data folder.")
    server_commands: bool = _setting(False, "Let keys with servers:write add servers that are commands, which run on this host.")
    egress_allow: tuple[str, ...] = _setting(
        (), "Addresses and CIDR ranges that requests to users’ URLs may reach, even if they are private or reserved."
    )
    egress_private: bool = _setting(False, "Let requests to users’ URLs reach private networks.")
    tool_calls_days: int = _setting(90, "Days until the record of a tool call is deleted.", between=(1, 3650))
    tool_arguments: bool = _setting(False, "Store the arguments of tool calls in their records, without secrets.")
    mcp_name_length: int = _setting(
        50, "Maximum length of the names of tools and prompts at /mcp. MCP clients add a prefix to them.", between=(40, 64)
    )
    webhook_deliveries_days: int = _setting(30, "Days until an event and its webhook deliveries are deleted.", between=(1, 3650))
    notify_deliveries_days: int = _setting(
        30, "Days until the deliveries of a finished campaign are deleted. Its statistics stay.", between=(1, 3650)
    )
    notify_host_concurrency: int = _setting(
        16, "Maximum number of notifications that are sent to one host at the same time.", between=(1, 1_000)
    )
    notify_host_rate: int | None = _setting(
        None, "Maximum number of notifications per second to one host, over all processes; by default no limit.", between=(1, 100_000)
    )
    public_discovery: bool | None = _setting(None, "Show discovery pages without a key; by default true, except in production.")
    console: bool = _setting(True, "Serve the console at /console, and lead browsers there from /.")
    api_docs_enabled: bool | None = _setting(None, "Serve /api/docs; by default true, except in production.")
    generation_prices: ModelPrices = _setting(
        (),
        "Prices of models per million input and output tokens, and of input from the provider's cache, which is by default that of input: "
        "`gpt-5-mini=0.25/2/0.025,*=1/3`; * is any other model.",
        parse=_parse_prices,
    )
    embedding_prices: tuple[tuple[str, int], ...] = _setting(
        (),
        "Prices of the models of an embedding service per million tokens, such as `text-embedding-3-small=0.02`; * is any other model.",
        parse=_parse_embedding_prices,
    )
    currency: str = _setting(
        DEFAULT_CURRENCY,
        "The currency of all prices, budgets and costs, as a code of ISO 4217 such as EUR. Amounts are never converted.",
        parse=_parse_currency,
    )
    generation_daily_budget: int | None = _setting(
        None, "What a workspace may spend on generations per day, in the currency of the prices; by default no limit.", parse=_parse_budget
    )
    generation_key_daily_budget: int | None = _setting(
        None, "What a key may spend on generations per day, in the currency of the prices; by default no limit.", parse=_parse_budget
    )
    generation_monthly_budget: int | None = _setting(
        None, "What a workspace may spend on generations per calendar month; by default no limit.", parse=_parse_budget
    )
    generation_key_monthly_budget: int | None = _setting(
        None, "What a key may spend on generations per calendar month; by default no limit.", parse=_parse_budget
    )
    generation_max_tokens: int = _setting(
        8192, "The highest number of tokens that a request may ask for as an answer.", between=(1, 1_000_000)
    )
    generation_timeout_s: int = _setting(120, "Maximum seconds of a generation, with all its attempts.", between=(1, 3600))
    generation_concurrency: int = _setting(4, "Queued generations that one process runs at the same time.", between=(1, 64))
    generation_reasoning: bool = _setting(True, "Store the reasoning of models with their answers, and show it as `output.reasoning`.")
    generation_days: int = _setting(30, "Days until a generation with its messages and its output is deleted.", between=(1, 3650))
    organization: str = _setting("Rookery", "The name of the operator on discovery pages.")
    allowed_hosts: tuple[str, ...] = _setting((), "Additional host names that the server accepts; * accepts any.")
    cors_origins: tuple[str, ...] = _setting((), "Web origins whose pages may call the API.")
    trusted_proxies: tuple[str, ...] = _setting((), "Addresses of proxies whose X-Forwarded-For header is trusted.")
    tls_cert: Path | None = _setting(None, "The certificate with which the server answers over TLS.")
    tls_key: Path | None = _setting(None, "The private key of the certificate.")
    bcrypt_cost: int = _setting(10, "The cost of a new API key's bcrypt hash.", between=(4, 14))
    half_lives: tuple[tuple[str, int | None], ...] = _setting(
        (), "Days until a memory’s confidence has halved, by type, such as `research=90,plan=never`.", parse=_parse_half_lives
    )
    recall_mode: Literal["semantic", "keyword", "hybrid"] = _setting("hybrid", "The search mode of recall for requests without `mode`.")
    recall_days: int = _setting(
        30, "Days until a recall is deleted: its entry in the log of recalls, and the possibility of feedback on it.", between=(1, 3650)
    )
    engine_timeout_ms: int = _setting(
        2_000,
        "Milliseconds that a recall or search waits for an engine on a server. Then it goes on without it, or fails.",
        between=(50, 60_000),
    )
    preload_embedder: bool = _setting(
        False, "Load the model of a built-in embedder at the start and not with the first text, which then waits less."
    )
    async_embedding: bool = _setting(True, "Answer remember requests before the memory is indexed.")
    max_memories: int = _setting(1_000_000, "Maximum number of memories in a workspace.", between=(1, 10**9))
    max_backlog: int = _setting(100_000, "Maximum number of memories of a workspace that wait for indexing.", between=(1, 10**9))
    max_connections: int = _setting(
        1000, "Maximum number of connections open at the same time, in each server process.", between=(10, 100_000)
    )
    workers: int = _setting(1, "Number of server processes of `rookery serve`, which share the address.", between=(1, 64))
    min_free_disk_mb: int = _setting(512, "Free space in MiB below which the server rejects writes.", between=(0, 10**6))
    job_lease_s: int = _setting(
        30, "Seconds after which another worker takes over a job whose worker has not renewed its lease.", between=(1, 3600)
    )
    strict: bool = _setting(False, "Refuse to start when an unknown ROOKERY_ variable is set.")
    hooks: bool = _setting(True, "Serve the hooks of coding agents. Off: they are answered with nothing, and nothing is recorded.")
    hook_timeout_ms: int = _setting(
        800,
        "Milliseconds after which a hook is answered with nothing. `rookery hook` waits for 1000; other hooks wait as their client does.",
        between=(50, 60_000),
    )
    smtp: Secret | None = _setting(
        None, "The SMTP server that sends notifications by e-mail, such as smtp://USER:PASSWORD@HOST:587?from=ADDRESS."
    )
    dkim_key: Secret | None = _setting(None, "The RSA private key in PEM that signs mails, if `ROOKERY_SMTP` has a `dkim_selector`.")
    vapid_private_key: Secret | None = _setting(
        None, "The P-256 private key of Web Push, in base64url or PEM; by default one that is created and stored encrypted."
    )
    vapid_subject: str | None = _setting(
        None, "Your address for push services, mailto: or https:; by default the public URL or the sender of mails.", parse=_parse_contact
    )
    apprise: bool = _setting(False, "Send notifications to Apprise URLs, which connect past the egress guard after its first check.")
    log_level: Literal["debug", "info", "warning", "error"] = _setting("info", "The lowest level that is logged.")
    log_format: Literal["auto", "json", "console"] = _setting("auto", "The format of log lines; auto: console on a terminal, else JSON.")
    access_log: bool = _setting(False, "Log each request.")
    metrics_port: int | None = _setting(
        None, "A port of 127.0.0.1 that serves metrics without a key; 0 picks a free one.", between=(0, 65535)
    )
    traces: Secret = _setting(Secret("none"), "The receiver of traces: none, or an OTLP URL such as http://127.0.0.1:4318.")

    @property
    def servers_file(self) -> Path:
        """The file of tool servers."""
        return self.servers or self.data_dir / "servers.json"

    @property
    def is_discovery_public(self) -> bool:
        """True if the discovery pages are shown without a key."""
        return self.environment != "production" if self.public_discovery is None else self.public_discovery

    def require_secret_key(self) -> None:
        """
        Check that every process that needs the secret key will find it.

        Raises:
            WrongSettings: No key is set, and the one in the data folder is not enough in production or on a shared record store.
        """
        is_shared = self.database_url.reveal() != "embedded:"
        if self.secret_key is None and (is_shared or self.environment == "production"):
            condition = "in production" if self.environment == "production" else "on a shared record store"
            raise WrongSettings(f"ROOKERY_SECRET_KEY must be set {condition}. Use the output of `openssl rand -base64 32`.")

    @property
    def has_api_docs(self) -> bool:
        """True if the generated API documentation is served."""
        return self.environment != "production" if self.api_docs_enabled is None else self.api_docs_enabled

    @property
    def has_public_urls(self) -> bool:
        """True if clients reach the server at another URL than the one on which it listens."""
        return bool(self.base_url or self.api_url or self.mcp_url)

    def public_url_of(self, path: str) -> str:
        """Return the public scheme and host of *path*."""
        if path.startswith("/api/v1/mcp"):
            url = self.base_url
        elif path.startswith(("/api/agent", "/mcp", "/servers", "/connect", "/.well-known", "/v0.1")):
            url = self.mcp_url
        else:
            url = self.api_url
        return url or self.base_url or self.api_url or self.mcp_url or self.listening_url

    def with_public_url(self, url: str) -> Settings:
        """Return a copy of these settings in which *url* is the public URL of every API."""
        return replace(self, base_url=url, api_url=url, mcp_url=url)

    @property
    def listening_url(self) -> str:
        """The URL on which a server with these settings listens: scheme, host and port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        public_host = "127.0.0.1" if host in {"0.0.0.0", "[::]"} else host  # noqa: S104 - compared, not listened on
        return f"{'https' if self.tls_cert else 'http'}://{public_host}:{self.port}"


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, and one warning for each unknown or ignored variable."""

    settings: Settings
    warnings: tuple[str, ...]


ENV_PREFIX = "ROOKERY_"
_NON_SETTING_VARIABLES = frozenset({"ROOKERY_CONFIG", "ROOKERY_KEY", "ROOKERY_URL"})
"""Variables with the prefix that are not settings: the path of the file, and the key and the server of clients on this host."""
_UNPREFIXED_SETTINGS = frozenset({"API_DOCS_ENABLED"})
"""Settings that may be written without the prefix. The name with the prefix takes precedence."""
_KUBERNETES_VARIABLE = re.compile(r"ROOKERY_(SERVICE_.*|PORT_\d+_.*)")
_VARIABLE_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def load_settings(environ: Mapping[str, str], *, overrides: Mapping[str, object] | None = None) -> LoadedSettings:
    """
    Read the settings.

    Args:
        overrides: Settings of the command line by name; they take precedence over all others.

    Raises:
        WrongSettings: A value is invalid, or a name is unknown in the file or, under ROOKERY_STRICT, in the environment.
    """
    parsers = {setting.name: _find_parser(setting) for setting in fields(Settings)}
    warnings = list[str]()
    path = _find_settings_file(environ, overrides or {})
    raw_values: dict[str, tuple[str, object]] = {
        **({} if path is None else {name: (f"{name} in {path}", raw) for name, raw in _read_settings_file(path, list(parsers)).items()}),
        **{variable.lower(): (variable, environ[variable]) for variable in _UNPREFIXED_SETTINGS & environ.keys()},
    }
    if path is not None and "data_dir" in raw_values and "ROOKERY_CONFIG" not in environ:
        raise WrongSettings(f"data_dir cannot be set in {path}, which is in the data folder: use --data-dir or ROOKERY_DATA_DIR.")
    messages = list[str]()
    raw_values |= _read_variables(environ, list(parsers), warnings=warnings, unknown=messages)
    for name, raw in (overrides or {}).items():
        raw_values[name] = (f"--{name.replace('_', '-')}", raw)
    values: dict[str, object] = {}
    for name, (source, raw) in raw_values.items():
        try:
            values[name] = parsers[name](_resolve_secret(raw, environ) if name in _SECRET_SETTINGS else raw)
        except ValueError as error:
            value_text = "…" if name in _SECRET_SETTINGS else repr(raw)
            msg = f"{source} = {value_text}: {error}"
            raise WrongSettings(msg) from None
    settings = Settings(**values)  # pyright: ignore[reportArgumentType] - each value was read by the parser of its setting
    if messages and settings.strict:
        raise WrongSettings(messages[0])
    return LoadedSettings(settings, (*warnings, *messages))


def parse_address(raw: str, environ: Mapping[str, str], *, name: str) -> Secret:
    """
    Return the address of an engine, with each ${NAME} replaced as in the settings.

    Args:
        raw: The address.
        environ: The variables.
        name: The option that has the address, for the error.

    Raises:
        WrongSettings: It is empty, or refers to a variable that is not set.
    """
    try:
        return _parse_address(_expand_variables(raw, environ))
    except ValueError as error:
        raise WrongSettings(f"{name}: {error}") from None


_TYPES = {name: get_args(kind)[0] if NoneType in get_args(kind) else kind for name, kind in get_type_hints(Settings).items()}
"""The type of each setting by name, without None."""
_SECRET_SETTINGS = frozenset(name for name, kind in _TYPES.items() if kind is Secret)
"""
Settings that are never printed. Their values may refer to variables or files by ${NAME}, or be the content of the file that
ROOKERY_<NAME>_FILE names.
"""
_PARSERS: Mapping[object, Callable[[object], object]] = {
    str: _parse_text,
    bool: _parse_bool,
    Path: _parse_path,
    Secret: _parse_address,
    tuple[str, ...]: _parse_list,
}
_FILE_SUFFIX = "_file"
_MAX_SHOWN_PATH = 300


def _find_parser(setting: Field[Any]) -> Callable[[object], object]:
    """Return the parser of a setting: its own, or that of its type."""
    kind = _TYPES[setting.name]
    if kind is int and (between := setting.metadata["between"]):
        return partial(_parse_int, between=between)
    if get_origin(kind) is Literal:
        return partial(_parse_choice, choices=get_args(kind))
    return setting.metadata["parse"] or _PARSERS[kind]


def _find_settings_file(environ: Mapping[str, str], overrides: Mapping[str, object]) -> Path | None:
    """Return the settings file: the one in ROOKERY_CONFIG, which must exist, or rookery.toml in the data folder if it exists."""
    if "ROOKERY_CONFIG" in environ:
        try:
            return _parse_path(environ["ROOKERY_CONFIG"])
        except ValueError as error:
            msg = f"ROOKERY_CONFIG = {environ['ROOKERY_CONFIG'][:_MAX_SHOWN_PATH]!r}: {error}"
            raise WrongSettings(msg) from None
    raw = overrides.get("data_dir", environ.get("ROOKERY_DATA_DIR"))
    try:
        path = (user_data_path("rookery") if raw is None else _parse_path(raw)) / SETTINGS_FILE
    except ValueError:
        return None  # load_settings reports the invalid data_dir itself
    return path if path.exists() else None


def _read_settings_file(path: Path, names: list[str]) -> Mapping[str, object]:
    try:
        values = tomllib.loads(read_config_file(path).decode("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        msg = f"The settings in {path} cannot be read: {reason}"
        raise WrongSettings(msg) from error
    except RecursionError as error:
        raise WrongSettings(f"The settings in {path} cannot be read: they are nested too deeply.") from error
    for name in values:
        if name not in names:
            msg = f"{path}: {_unknown_setting_message(name, names)}"
            raise WrongSettings(msg)
    return values


def _read_variables(
    environ: Mapping[str, str], names: list[str], *, warnings: list[str], unknown: list[str]
) -> dict[str, tuple[str, object]]:
    """
    Return the settings among the variables by name, each with its variable. A value from `ROOKERY_…_FILE` is the path of the file.

    Args:
        warnings: Gets a message for each ignored variable.
        unknown: Gets a message for each variable that is not a setting.

    Raises:
        WrongSettings: A secret and its file are both set.
    """
    raw_values = dict[str, tuple[str, object]]()
    for variable, raw in environ.items():
        if not variable.startswith(ENV_PREFIX) or variable in _NON_SETTING_VARIABLES:
            continue
        name = variable.removeprefix(ENV_PREFIX).lower()
        if _KUBERNETES_VARIABLE.fullmatch(variable) or (variable == "ROOKERY_PORT" and raw.startswith("tcp://")):
            warnings.append(f"{variable} seems to be set by Kubernetes and is ignored.")
        elif name in names:
            raw_values[name] = (variable, raw)
        elif (secret := name.removesuffix(_FILE_SUFFIX)) in _SECRET_SETTINGS:
            if (direct := ENV_PREFIX + secret.upper()) in environ:
                raise WrongSettings(f"{direct} and {variable} are both set. Remove one of them.")
            raw_values[secret] = (variable, Path(raw))
        else:
            known_names = [*names, *(secret + _FILE_SUFFIX for secret in sorted(_SECRET_SETTINGS))]
            unknown.append(_unknown_setting_message(variable, [ENV_PREFIX + name.upper() for name in known_names]))
    return raw_values


def _unknown_setting_message(name: str, known_names: list[str]) -> str:
    nearest = find_nearest(name, known_names)
    return f"{name} is not a setting of Rookery" + (f"; did you mean {nearest}?" if nearest else ".")


def _resolve_secret(raw: object, environ: Mapping[str, str]) -> object:
    """Return the content of the file *raw* if it is a path, without spaces around it. In a text, replace each ${NAME}."""
    if isinstance(raw, Path):
        return _read_secret_file(raw, "the file")
    return _expand_variables(raw, environ) if isinstance(raw, str) else raw


def _expand_variables(raw: str, environ: Mapping[str, str]) -> str:
    """Replace each ${NAME} by the variable NAME or by the content of the file that the variable NAME_FILE points to."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name in environ:
            return environ[name]
        if f"{name}_FILE" in environ:
            return _read_secret_file(Path(environ[f"{name}_FILE"]), f"{name}_FILE")
        msg = f"${{{name}}} is not set"
        raise ValueError(msg)

    return _VARIABLE_REFERENCE.sub(value, raw)


def _read_secret_file(path: Path, label: str) -> str:
    """
    Return the content of a file, without spaces around it.

    Raises:
        ValueError: The file cannot be read, or is not UTF-8. The message has neither its path nor its content.
    """
    try:
        return read_config_file(path).decode("utf-8").strip()
    except OSError as error:
        msg = f"{label} cannot be read: {error.strerror}"
        raise ValueError(msg) from error
    except UnicodeDecodeError:
        msg = f"{label} is not a text in UTF-8"
        raise ValueError(msg) from None
