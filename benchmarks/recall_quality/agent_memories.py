"""
Memories as coding agents write them, made by rules: decisions, conventions, errors and hand-offs of twelve services.

Every fact exists for each service, so that a question must find the right one among eleven that differ in names only. The two ways to ask
for a fact share few words with it, as people and agents ask from another side than they wrote. Hand-offs are short sessions in which
the memory with the answer does not name what it is about, because the one before it did.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.recall_quality.questions import Collection, Question

_SERVICES = (
    "billing",
    "checkout",
    "search",
    "notifications",
    "identity",
    "inventory",
    "reporting",
    "media",
    "shipping",
    "pricing",
    "support",
    "gateway",
)
_STORES = ("PostgreSQL", "MySQL", "Cassandra", "Redis", "SQLite", "MongoDB")
_LANGUAGES = ("Go", "Python", "Rust", "Kotlin", "TypeScript", "Java")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday")
_PEOPLE = ("Amara", "Bruno", "Chen", "Dilara", "Emeka", "Freya", "Goran", "Hana", "Ivo", "Jun", "Karim", "Lena")
_CAUSES = (
    "an expired certificate",
    "a full disk",
    "a connection pool of five",
    "a clock that ran ahead",
    "a missing index",
    "a retry without a delay",
)
_FIXES = ("renewing it each week", "rotating the logs", "raising it to fifty", "asking the time server", "adding it", "backing off")
_FORMATS = ("JSON lines", "CSV", "Parquet", "Avro", "protocol buffers", "YAML")
_REGIONS = ("Frankfurt", "Dublin", "Oregon", "Singapore", "Mumbai", "Warsaw")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """A fact of each service; *questions* are the ways to ask for it. Placeholders are the names in `_values`."""

    type: str
    memory: str
    questions: tuple[str, ...]


_RULES = (
    _Rule(
        type="decision",
        memory="Decided to keep the {service} data in {store}: the team knows how to run it and the volume is small.",
        questions=("Which database does {service} use?", "Where are the records of {service} stored?"),
    ),
    _Rule(
        type="architecture",
        memory="The {service} service is written in {language} and listens on port {port}.",
        questions=("In what programming language was {service} implemented?", "On which port can I reach {service}?"),
    ),
    _Rule(
        type="convention",
        memory="Releases of {service} go out on {day} mornings, never before a holiday.",
        questions=("When may I deploy {service}?",),
    ),
    _Rule(
        type="observation",
        memory="{person} owns {service} and reviews every change to its schema.",
        questions=("Who has to approve a migration of {service}?", "Whom do I ask about {service}?"),
    ),
    _Rule(
        type="bug",
        memory="The outage of {service} last month was caused by {cause}; we fixed it by {fix}.",
        questions=("Why did {service} go down?", "What was the root cause of the {service} incident?"),
    ),
    _Rule(
        type="bug",
        memory="{error}: raised by {service} when the upstream closes early. Safe to ignore if it appears less than ten times an hour.",
        questions=("What does {error} mean?", "How often may {service} lose its upstream before we worry?"),
    ),
    _Rule(
        type="procedure",
        memory="To restore {service}, stop the writers, load last night's dump from {region}, then replay the queue.",
        questions=("How do I recover {service} from a backup?", "In which region is the dump of {service}?"),
    ),
    _Rule(
        type="convention",
        memory="{service} exports its events as {format}; consumers must accept unknown fields.",
        questions=("What format do the events of {service} have?",),
    ),
    _Rule(
        type="decision",
        memory="We will not cache answers of {service} longer than {seconds} seconds, because customers complained about stale prices.",
        questions=("How long may a response of {service} be kept in a cache?", "What is the maximum age of {service} answers?"),
    ),
    _Rule(
        type="context",
        memory="The load test of {service} reached {rate} requests per second before latency doubled.",
        questions=("How much traffic can {service} take?", "What throughput did {service} sustain?"),
    ),
)

_HANDOFF = (
    "{person} hands over the {service} ticket: uploads fail for files above the limit.",
    "Tried a larger buffer first, which changed nothing.",
    "The proxy in front cuts bodies at {megabytes} MB; raising client_max_body_size solved it.",
    "Left to do: the same setting on the staging machines.",
)
_HANDOFF_QUESTIONS = ("Why did uploads of {service} fail, and what solved it?", "What is left to do on the {service} upload ticket?")
_HANDOFF_ANSWERS = (2, 3)


def build_collection() -> Collection:
    """Return the memories and the questions about them."""
    documents, sessions, types = dict[str, str](), dict[str, str](), dict[str, str]()
    questions = list[Question]()
    for number, service in enumerate(_SERVICES):
        values = _values(number, service)
        for place, rule in enumerate(_RULES):
            name = f"{service}-{place}"
            documents[name], types[name] = rule.memory.format_map(values), rule.type
            questions += [
                Question(id=f"{name}/{way}", text=question.format_map(values), gold=frozenset({name}), category=rule.type)
                for way, question in enumerate(rule.questions)
            ]
        for place, text in enumerate(_HANDOFF):
            name = f"{service}-handoff-{place}"
            documents[name], sessions[name], types[name] = text.format_map(values), f"{service}-handoff", "context"
        questions += [
            Question(
                id=f"{service}-handoff/{place}",
                text=question.format_map(values),
                gold=frozenset({f"{service}-handoff-{place}"}),
                category="hand-off",
            )
            for place, question in zip(_HANDOFF_ANSWERS, _HANDOFF_QUESTIONS, strict=True)
        ]
    return Collection(name="agents", documents=documents, questions=tuple(questions), sessions=sessions, types=types)


def _values(number: int, service: str) -> dict[str, object]:
    """Return the facts of a service. Each list is walked with another step, so that no two services share all of them."""

    def pick(names: tuple[str, ...], step: int) -> str:
        return names[(number * step + step) % len(names)]

    cause = (number * 5 + 1) % len(_CAUSES)
    return {
        "service": service,
        "store": pick(_STORES, 1),
        "language": pick(_LANGUAGES, 5),
        "port": 7000 + 13 * number,
        "day": pick(_DAYS, 3),
        "person": _PEOPLE[(number * 7) % len(_PEOPLE)],
        "cause": _CAUSES[cause],
        "fix": _FIXES[cause],
        "error": f"E_{service.upper()}_{100 + 17 * number}",
        "region": pick(_REGIONS, 5),
        "format": pick(_FORMATS, 1),
        "seconds": 30 + 10 * number,
        "rate": 400 + 150 * number,
        "megabytes": 2 + number,
    }
