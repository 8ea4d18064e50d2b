"""
Read a folder with a model of the user: BERT weights in safetensors, or an ONNX file, with the tokenizer.

The settings of sentence-transformers are used where the folder has them: `modules.json`, the pooling, the prompts, the maximum length.
Options of the address replace them. A folder that needs anything else is rejected, because its vectors would be wrong without an error.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast
from urllib.parse import unquote

from rookery.engines.embedders import FOLDER_FORM, MAX_PREFIX_CHARS
from rookery.engines.embedders.bert import BertConfig, Pooling, Precision
from rookery.engines.embedders.model_cache import fingerprint
from rookery.engines.embedders.model_files import InvalidModelError
from rookery.engines.embedders.weights import Array, SafetensorsFile, Weights
from rookery.kernel.errors import WrongSettings
from rookery.kernel.model_service_urls import parse_options

POOLINGS: tuple[Pooling, ...] = ("cls", "mean")
PRECISIONS: tuple[Precision, ...] = ("f32", "int8")
OPTIONS = frozenset({"pooling", "precision", "window", "query_prefix", "passage_prefix"})

MIN_WINDOW_TOKENS = 64
"""A shorter window has no room for a context and a chunk."""

SENTENCE_CONFIG_FILE = "sentence_bert_config.json"
WEIGHTS_FILE, TOKENIZER_FILE, CONFIG_FILE = "model.safetensors", "tokenizer.json", "config.json"
GRAPH_FILES = ("model.onnx", "onnx/model.onnx")

_MAX_JSON_BYTES = 10_000_000
_OFFSET_POSITIONS = {"roberta", "xlm-roberta", "camembert", "mpnet", "xlm-roberta-xl"}
"""Architectures whose positions begin after the padding id: two of them are not usable."""

_POOLING_FLAGS = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}
_KNOWN_MODULES = ("Transformer", "Pooling", "Normalize")

Json = Mapping[str, object]
Format = Literal["safetensors", "onnx"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderModel:
    """
    A model in a folder, as its files and the options of the address describe it. The weights are not read yet.

    Attributes:
        name: Name of the folder.
        identity: Fingerprint of everything that determines the vectors of passages.
        pooling: None if neither the folder nor the address states one.
        has_pooled_output: An ONNX file may pool by itself, in its output `sentence_embedding`.
        window_tokens: Maximum tokens of an input, special ones included.
    """

    name: str
    folder: Path
    format: Format
    weights: Path
    tokenizer: Path
    identity: str
    dimension: int
    precision: Precision
    pooling: Pooling | None
    has_pooled_output: bool
    window_tokens: int
    query_prefix: str
    passage_prefix: str
    must_lowercase: bool
    config: Json

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens that the model has vectors for."""
        return _integer(self.config, "vocab_size")

    @property
    def description(self) -> str:
        """Name, precision, dimension and pooling of the model, for people."""
        pooling = f"{self.pooling} pooling" if self.pooling else "pooling of the graph"
        form = "an ONNX file" if self.format == "onnx" else "8-bit integers" if self.precision == "int8" else "full precision"
        return f"{self.name} in {self.folder} ({form}, {self.dimension} dimensions, {pooling}, {self.window_tokens} tokens)"

    def open_weights(self) -> Weights:
        """
        Return the weights of the safetensors file.

        Raises:
            InvalidModelError: The file is damaged.
        """
        return _WithoutPrefix(SafetensorsFile(self.weights))

    def bert_config(self) -> BertConfig:
        """
        Return the shape of the encoder.

        Raises:
            InvalidModelError: It is not BERT, or a variant that the graph does not compute.
        """
        config = self.config
        required = {
            "model_type": ("bert", None),
            "hidden_act": ("gelu", "gelu"),
            "position_embedding_type": ("absolute", "absolute"),
            "is_decoder": (False, False),
        }
        for name, (expected, default) in required.items():
            if (value := config.get(name, default)) != expected:
                raise InvalidModelError(
                    f"{CONFIG_FILE}: {name} is {value!r}, but only {expected!r} can be computed from {WEIGHTS_FILE}; "
                    "provide the model as model.onnx"
                )
        heads = _integer(config, "num_attention_heads")
        if self.dimension % heads:
            raise InvalidModelError(f"{CONFIG_FILE}: hidden_size {self.dimension} is not a multiple of num_attention_heads {heads}")
        if self.pooling is None:
            raise InvalidModelError("the pooling is missing; set pooling=mean or pooling=cls, as the model's description says")
        return BertConfig(
            name=self.name,
            dimension=self.dimension,
            layers=_integer(config, "num_hidden_layers"),
            heads=heads,
            intermediate=_integer(config, "intermediate_size"),
            vocabulary=self.vocabulary_size,
            window_tokens=self.window_tokens,
            padding_id=_integer(config, "pad_token_id", default=0, minimum=0),
            pooling=self.pooling,
            epsilon=_epsilon(config),
        )


def read_url(url: str, *, setting: str) -> FolderModel:
    """
    Return the model at *url*, without reading its weights.

    Args:
        setting: Setting that contains *url*, for error messages.

    Raises:
        WrongSettings: The address is invalid, a file is missing or cannot be used, or an option is invalid.
    """
    path, _, query = url.removeprefix("embedded:").partition("?")
    folder = Path(unquote(path))
    if not folder.is_absolute():
        raise WrongSettings(f"{setting}: the folder of a model must be an absolute path, such as {FOLDER_FORM}, not {path[:100]!r}")
    options = {name: value[:MAX_PREFIX_CHARS] for name, value in parse_options(query, setting, OPTIONS).items()}
    try:
        return read_folder(folder, options)
    except InvalidModelError as error:
        raise WrongSettings(f"{setting}: {folder}: {error}") from error
    except OSError as error:
        raise WrongSettings(f"{setting}: {folder} cannot be read: {error.strerror}") from error


def read_folder(folder: Path, options: Mapping[str, str]) -> FolderModel:
    """
    Return the model in *folder*, without reading its weights.

    Raises:
        InvalidModelError: A file is missing or cannot be used, or an option is invalid.
    """
    _check_options(options)
    if not folder.is_dir():
        raise InvalidModelError("it is not a folder" if folder.exists() else "the folder does not exist")
    modules = _read_modules(folder)
    root = folder / modules.get("Transformer", "")
    config = _read_json(root / CONFIG_FILE)
    weights = _find_file(folder, root, (WEIGHTS_FILE, *GRAPH_FILES), _describe_missing_weights(root))
    kind: Format = "safetensors" if weights.suffix == ".safetensors" else "onnx"
    precision = cast("Precision", options.get("precision", "int8" if kind == "safetensors" else "f32"))
    if kind == "onnx" and "precision" in options:
        raise InvalidModelError(f"the option precision applies to {WEIGHTS_FILE}; an ONNX file is used as it is")
    unknown_modules = sorted(modules.keys() - set(_KNOWN_MODULES))
    if unknown_modules and kind == "safetensors":
        reason = f"modules.json: the module {unknown_modules[0][:40]} is not supported, only {', '.join(_KNOWN_MODULES)}"
        raise InvalidModelError(f"{reason}; provide the model as model.onnx with the output sentence_embedding")
    pooling = cast("Pooling | None", options.get("pooling")) or (None if unknown_modules else _read_pooling(folder))
    queries, passages = _read_prompts(folder)
    window = _find_window(root, config, options)
    model = FolderModel(
        name=folder.resolve().name[:40],
        folder=folder,
        format=kind,
        weights=weights,
        tokenizer=_find_file(
            folder, root, (TOKENIZER_FILE,), f"{TOKENIZER_FILE} is missing; save_pretrained of a fast tokenizer writes it"
        ),
        identity="",
        dimension=_integer(config, "dim" if config.get("model_type") == "distilbert" else "hidden_size"),
        precision=precision,
        pooling=pooling,
        has_pooled_output=kind == "onnx" and "pooling" not in options,
        window_tokens=window,
        query_prefix=options.get("query_prefix", queries),
        passage_prefix=options.get("passage_prefix", passages),
        must_lowercase=_read_optional(root / SENTENCE_CONFIG_FILE).get("do_lower_case", False) is True,
        config=config,
    )
    return _with_identity(model)


def _with_identity(model: FolderModel) -> FolderModel:
    """Return *model* with its identity. It has no query prefix, which changes no stored vector."""
    parts = [
        fingerprint(model.weights, model.tokenizer),
        json.dumps(model.config, sort_keys=True),
        model.format,
        model.precision,
        f"{model.pooling}, {model.has_pooled_output}",
        str(model.window_tokens),
        model.passage_prefix,
    ]
    return replace(model, identity=hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:12])


class _WithoutPrefix:
    """Weights whose names begin with the name of the whole model, as exports of a model with a head have."""

    def __init__(self, weights: SafetensorsFile) -> None:
        self._weights = weights
        self._names = {name.removeprefix("bert."): name for name in weights.shapes}
        self.shapes: Mapping[str, tuple[int, ...]] = {short: weights.shapes[name] for short, name in self._names.items()}

    def read(self, name: str, first: int = 0, last: int | None = None) -> Array:
        return self._weights.read(self._names[name], first, last)


def _check_options(options: Mapping[str, str]) -> None:
    for name, allowed in (("pooling", POOLINGS), ("precision", PRECISIONS)):
        if name in options and options[name] not in allowed:
            raise InvalidModelError(f"{name} must be one of {', '.join(allowed)}, not {options[name][:40]!r}")
    window = options.get("window")
    if window is not None and not (window.isascii() and window.isdigit() and MIN_WINDOW_TOKENS <= int(window) <= 10**6):
        raise InvalidModelError(f"window must be a number of tokens, at least {MIN_WINDOW_TOKENS}, not {window[:40]!r}")


def _read_modules(folder: Path) -> dict[str, str]:
    """Return the modules of sentence-transformers with their sub-folders; nothing if the folder states none."""
    path = folder / "modules.json"
    if not path.is_file():
        return {}
    value = _read_any(path)
    modules = cast("list[object]", value) if isinstance(value, list) else []
    if not modules or not all(isinstance(module, dict) for module in modules):
        raise InvalidModelError("modules.json is not a list of modules")
    return {str(module.get("type", "")).rpartition(".")[2]: str(module.get("path", "")) for module in cast("list[Json]", modules)}


def _find_file(folder: Path, root: Path, names: Sequence[str], reason: str) -> Path:
    """Return the first of the files that exists. Raise `InvalidModelError` with *reason* if all are missing."""
    candidates = [place / name for name in names for place in (root, folder)]
    path = next((path for path in candidates if path.is_file()), None)
    if path is None:
        raise InvalidModelError(reason)
    return path


def _describe_missing_weights(root: Path) -> str:
    reason = f"the weights are missing: the folder has none of {', '.join((WEIGHTS_FILE, *GRAPH_FILES))}"
    if (root / "pytorch_model.bin").exists():
        reason += "; pytorch_model.bin can run code when it is read: save the model in safetensors"
    return reason


def _read_pooling(folder: Path) -> Pooling | None:
    """Return the pooling of sentence-transformers; None if the folder does not state one."""
    config = _read_optional(folder / "1_Pooling" / CONFIG_FILE)
    if not config:
        return None
    if config.get("include_prompt", True) is False:
        raise InvalidModelError("1_Pooling/config.json: include_prompt is false, which is not supported")
    if isinstance(mode := config.get("pooling_mode"), str):
        modes = [mode.removesuffix("_token").removesuffix("_tokens")]
    else:
        modes = [_POOLING_FLAGS.get(name, name) for name, value in config.items() if name.startswith("pooling_mode_") and value is True]
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise InvalidModelError(
            f"1_Pooling/config.json: the pooling {' with '.join(modes)[:80]} is not supported, only {', '.join(POOLINGS)}"
        )
    return modes[0]


def _read_prompts(folder: Path) -> tuple[str, str]:
    """Return the prefixes of queries and of passages that sentence-transformers would use; empty ones if the folder states none."""
    config = _read_optional(folder / "config_sentence_transformers.json")
    prompts = config.get("prompts")
    prompts = cast("Json", prompts if isinstance(prompts, dict) else {})
    default = prompts.get(str(config.get("default_prompt_name")), "")
    passage = next((prompts[name] for name in ("document", "passage") if name in prompts), default)
    return str(prompts.get("query", default) or ""), str(passage or "")


def _find_window(root: Path, config: Json, options: Mapping[str, str]) -> int:
    unlimited = int(options.get("window", 0)) or None
    positions = _integer(config, "max_position_embeddings", default=unlimited)
    if config.get("model_type") in _OFFSET_POSITIONS:
        positions -= 2
    length = _integer(_read_optional(root / SENTENCE_CONFIG_FILE), "max_seq_length", default=positions)
    window = int(options.get("window", min(length, positions)))
    if window > positions:
        raise InvalidModelError(f"window must be at most {positions}, the positions of the model, not {window}")
    if window < MIN_WINDOW_TOKENS:
        raise InvalidModelError(f"the model accepts only {window} tokens; at least {MIN_WINDOW_TOKENS} are required")
    return window


def _integer(config: Json, name: str, *, default: int | None = None, minimum: int = 1) -> int:
    value = config.get(name)
    if value is None:
        value = default
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise InvalidModelError(f"{CONFIG_FILE}: {name} must be a whole number of at least {minimum}, not {str(value)[:40]!r}")
    return value


def _epsilon(config: Json) -> float:
    value = config.get("layer_norm_eps", 1e-12)
    if not isinstance(value, float) or not 0 < value < 1:
        raise InvalidModelError(f"{CONFIG_FILE}: layer_norm_eps must be a number between 0 and 1, not {str(value)[:40]!r}")
    return value


def _read_json(path: Path) -> Json:
    value = _read_any(path)
    if not isinstance(value, dict):
        raise InvalidModelError(f"{path.name} is not a JSON object")
    return cast("Json", value)


def _read_optional(path: Path) -> Json:
    return _read_json(path) if path.is_file() else {}


def _read_any(path: Path) -> object:
    try:
        if path.stat().st_size > _MAX_JSON_BYTES:
            raise InvalidModelError(f"{path.name} is larger than {_MAX_JSON_BYTES:,} bytes")
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InvalidModelError(f"{path.name} is missing") from None
    except (ValueError, RecursionError) as error:
        raise InvalidModelError(f"{path.name} is not JSON: {error}") from error


def file_stem(name: str) -> str:
    """Return *name* with only characters that file names have everywhere."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)
