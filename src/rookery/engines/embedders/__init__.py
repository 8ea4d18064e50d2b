"""
Engines of `memory.ports.Embedder`, which computes vectors of texts. `open` selects one by its address.

    embedded:, embedded:f32                    the built-in model in 8-bit integers, and in full precision
    embedded:e5-small                          a multilingual model, from the extra `multilingual`
    embedded:/FOLDER?pooling=cls               a model of the user, in a folder
    openai+https://:KEY@host/v1?model=NAME     any service with OpenAI's /v1/embeddings; openai:// without TLS
    ollama://host:11434/NAME                   Ollama's /api/embed; ollama+https:// with TLS
    tei://host:8080/NAME                       Text Embeddings Inference's /embed; tei+https:// with TLS
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rookery.engines.embedders.model_files import E5_INSTALL_COMMAND, find_e5_weights
from rookery.kernel.errors import WrongSettings
from rookery.kernel.model_service_urls import EMBEDDING_KINDS, URL_FORMS, ModelServiceKind, is_model_service_url, parse_model_service_url
from rookery.kernel.secret import Secret
from rookery.kernel.urls import show_scheme
from rookery.memory.ports import Embedder, TokenMeter

if TYPE_CHECKING:
    from rookery.engines.embedders.model import EmbeddingModel

ADDRESSES = ("embedded:", "embedded:f32", "embedded:e5-small")
"""Addresses that need no server and no files of the user."""

FOLDER_FORM = "embedded:/FOLDER"

DEFAULT_DIMENSION = 768
"""Default dimension of a service's vectors."""

VERSION = 1
"""Version of the vectors of local models. Raise it when chunks or arithmetic change: stored vectors then count as stale."""

MINILM_FULL_SIMILARITY = 0.7
"""`Embedder.full_similarity` of all-MiniLM-L6-v2, measured on the development half of LoCoMo and on SciFact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PackagedModel:
    """A model with an address of its own."""

    model: str
    description: str
    full_similarity: float | None


_PACKAGED_DIMENSION = 384
_PACKAGED = {
    "embedded:": _PackagedModel(
        model=f"all-MiniLM-L6-v2/int8-{VERSION}",
        description="all-MiniLM-L6-v2 (English, 8-bit integers, 384 dimensions)",
        full_similarity=MINILM_FULL_SIMILARITY,
    ),
    "embedded:f32": _PackagedModel(
        model=f"all-MiniLM-L6-v2/f32-{VERSION}",
        description="all-MiniLM-L6-v2 (English, full precision, 384 dimensions)",
        full_similarity=MINILM_FULL_SIMILARITY,
    ),
    "embedded:e5-small": _PackagedModel(
        model=f"multilingual-e5-small/int8-{VERSION}",
        description="multilingual-e5-small (94 languages, 8-bit integers, 384 dimensions)",
        full_similarity=None,
    ),
}

_REMOTE_VERSION = 1
"""Version of the texts that are sent for a passage. Raise it when chunks or context change: stored vectors then count as stale."""

_MAX_DIMENSION = 16_384

_OPTIONS = frozenset({"dimensions", "query_prefix", "passage_prefix"})
MAX_PREFIX_CHARS = 500

_MINILM_NAMES = re.compile(r"(?:.*/)?all-minilm(?:-l6-v2(?:[-:].*)?|:(?:latest|22m|l6-v2)(?:-.*)?)?", re.IGNORECASE)
"""Names of all-MiniLM-L6-v2 at services. Ollama calls it `all-minilm`; its tags 33m and l12 are all-MiniLM-L12-v2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteModel:
    """
    An embedding service and one of its models.

    Attributes:
        endpoint: URL that texts are posted to.
        info_endpoint: URL that describes the served model; None if the service has none.
        requested_dimension: Dimension requested from the service; None for the model's default.
        stored_dimension: Dimension of stored vectors; shorter ones are padded with zeros.
        query_prefix: Text before each query; some models require one.
        passage_prefix: Text before each chunk of a passage.
    """

    kind: ModelServiceKind
    endpoint: str
    info_endpoint: str | None
    key: Secret | None
    model_name: str
    requested_dimension: int | None
    stored_dimension: int
    query_prefix: str
    passage_prefix: str

    @property
    def model(self) -> str:
        """
        The model identifier that is stored with each vector.

        It does not contain the host: a service that moves returns the same vectors.
        """
        prefix = f"+{hashlib.sha256(self.passage_prefix.encode()).hexdigest()[:8]}" if self.passage_prefix else ""
        return f"{self.kind}/{self.model_name}/{self.stored_dimension}{prefix}-{_REMOTE_VERSION}"

    @property
    def description(self) -> str:
        """Name of the model and dimension of its stored vectors, for people."""
        return f"{self.model_name} of a service ({self.kind}, {self.stored_dimension} dimensions)"

    @property
    def full_similarity(self) -> float | None:
        """The scale of the model if its name is one of all-MiniLM-L6-v2, else None. Prefixes change the scale."""
        is_minilm = _MINILM_NAMES.fullmatch(self.model_name) is not None and not (self.query_prefix or self.passage_prefix)
        return MINILM_FULL_SIMILARITY if is_minilm else None


class EmbedderEngine(Embedder, Protocol):
    """
    An opened embedder: the port, with start and close.

    Attributes:
        description: Name, languages, precision and dimension of the model, for people.
    """

    @property
    def description(self) -> str: ...

    @property
    def is_starting(self) -> bool:
        """True during the first preparation, until it succeeds or fails."""
        ...

    async def check(self) -> None:
        """
        Check within seconds that the vectors have an allowed dimension.

        Raises:
            EngineUnavailable: The engine does not answer.
            WrongSettings: The dimension is wrong, so a retry cannot succeed.
        """
        ...

    @property
    def is_loaded(self) -> bool:
        """True if a text needs no preparation: the model is loaded, or a service needs none."""
        ...

    async def warm(self) -> None:
        """Prepare for the first text. Can be called again after `EngineUnavailable`."""
        ...

    async def probe(self) -> None:
        """Check that the engine works, as `warm` does, but load no model. Raises the same errors, also that of the last attempt to load."""
        ...

    async def close(self) -> None:
        """Release threads, connections and memory. Pending texts fail with `EngineUnavailable`."""
        ...


def open(  # noqa: A001 - each engine folder has an `open`
    url: str,
    *,
    data_dir: Path,
    dimension: int = DEFAULT_DIMENSION,
    verify_ssl: bool = True,
    meter: TokenMeter | None = None,
    setting: str = "ROOKERY_EMBEDDER",
) -> EmbedderEngine:
    """
    Return the embedder at *url*.

    Fast: `warm` or the first text loads the model or contacts the service.

    Args:
        url: One of `ADDRESSES`, or the address of a service.
        data_dir: The engine may store its own files in a folder below it.
        dimension: Dimension of a service's vectors. Models of this process have their own, which must not be larger.
        verify_ssl: Require a trusted certificate from a service.
        meter: Counts the tokens of a service.
        setting: Setting that contains *url*, for error messages.

    Raises:
        WrongSettings: No engine has this address, or its vectors are wider than *dimension*.
    """
    if is_model_service_url(url):
        from rookery.engines.embedders.remote import RemoteEmbedder  # imports the HTTP client, which the built-in engine does not need

        return RemoteEmbedder(parse_url(url, dimension=dimension, setting=setting), verify_ssl=verify_ssl, meter=meter)
    from rookery.engines.embedders.embedded import EmbeddedEmbedder  # optional dependencies

    if _is_folder(url):
        from rookery.engines.embedders.model_folder import read_url  # imports numpy, which a service does not need

        folder = read_url(url, setting=setting)
        _require_dimension(dimension, folder.dimension, f"the model in {folder.folder}")

        def load_folder_model() -> EmbeddingModel:
            from rookery.engines.embedders.model import load_folder  # imported in the thread that loads the model

            return load_folder(data_dir, folder)

        return EmbeddedEmbedder(
            model=f"folder/{folder.name}/{folder.identity}-{VERSION}",
            dimension=folder.dimension,
            load=load_folder_model,
            description=folder.description,
            check_prefix=f"{setting}: {folder.folder}",
        )
    packaged = _PACKAGED.get(url)
    if packaged is None:
        name = f" {url[:40]!r}" if url.startswith("embedded:") else show_scheme(url)
        raise WrongSettings(f"{setting}: unknown embedder{name}; use one of {', '.join([*ADDRESSES, FOLDER_FORM, *URL_FORMS.values()])}")
    _require_dimension(dimension, _PACKAGED_DIMENSION, "the built-in model" if url != "embedded:e5-small" else "multilingual-e5-small")
    if url == "embedded:e5-small" and find_e5_weights() is None:
        raise WrongSettings(f"{setting}: the model of {url} is not installed; install it: {E5_INSTALL_COMMAND}")

    def load() -> EmbeddingModel:
        from rookery.engines.embedders.model import load_e5, load_model  # imported in the thread that loads the model

        return load_e5(data_dir) if url == "embedded:e5-small" else load_model(data_dir, "f32" if url == "embedded:f32" else "int8")

    return EmbeddedEmbedder(
        model=packaged.model,
        dimension=_PACKAGED_DIMENSION,
        load=load,
        description=packaged.description,
        full_similarity=packaged.full_similarity,
    )


def open_for_model(
    model: str,
    dimension: int,
    *,
    urls: tuple[str | None, ...],
    data_dir: Path,
    verify_ssl: bool = True,
    meter: TokenMeter | None = None,
) -> EmbedderEngine | None:
    """
    Return the embedder that computes vectors of *model* with *dimension*, or None.

    The candidates are the embedders at *urls* and the built-in ones. *dimension* is the one of the stored index, which can differ from the
    setting.

    Raises:
        WrongSettings: An address in *urls* is invalid.
    """
    for url in (*urls, *(url for url, packaged in _PACKAGED.items() if packaged.model == model)):
        if url is None:
            continue
        is_local = url.startswith("embedded:")
        try:
            engine = open(
                url,
                data_dir=data_dir,
                dimension=_MAX_DIMENSION if is_local else dimension,
                verify_ssl=verify_ssl,
                meter=meter,
                setting="ROOKERY_EMBEDDER_PREVIOUS",
            )
        except WrongSettings:
            if url in urls:
                raise
            continue  # its package is no longer installed
        if (engine.model, engine.dimension) == (model, dimension):
            return engine
    return None


def _is_folder(url: str) -> bool:
    return url.startswith("embedded:") and url not in ADDRESSES and bool({"/", "\\"} & set(url))


def _require_dimension(setting: int, dimension: int, model: str) -> None:
    if setting < dimension:
        raise WrongSettings(f"ROOKERY_VECTOR_DIMENSION: must be at least {dimension}, the dimensions of {model}, not {setting}")


def parse_url(url: str, *, dimension: int, setting: str) -> RemoteModel:
    """
    Return the service and model that *url* describes. Its scheme must be one of a service.

    Args:
        dimension: Dimension of the vectors if *url* has no `dimensions`.
        setting: Setting that contains *url*. Errors contain its name, never its value.

    Raises:
        WrongSettings: The host or the model is missing, or a part is invalid.
    """
    service = parse_model_service_url(url, setting=setting, kinds=EMBEDDING_KINDS, option_names=_OPTIONS)
    dimensions = _parse_dimensions(service.options.get("dimensions"), setting)
    paths = {"openai": (service.path.removesuffix("/embeddings") or "/v1") + "/embeddings", "ollama": "/api/embed", "tei": "/embed"}
    return RemoteModel(
        kind=service.kind,
        endpoint=service.origin + paths[service.kind],
        info_endpoint=f"{service.origin}/info" if service.kind == "tei" else None,
        key=service.key,
        model_name=service.model,
        requested_dimension=dimensions,
        stored_dimension=dimension if dimensions is None else dimensions,
        query_prefix=service.options.get("query_prefix", "")[:MAX_PREFIX_CHARS],
        passage_prefix=service.options.get("passage_prefix", "")[:MAX_PREFIX_CHARS],
    )


def _parse_dimensions(text: str | None, setting: str) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= _MAX_DIMENSION):
        raise WrongSettings(f"{setting}: dimensions must be a whole number from 1 to {_MAX_DIMENSION}, not {text[:40]!r}")
    return int(text)
