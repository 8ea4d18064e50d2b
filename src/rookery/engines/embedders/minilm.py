"""The built-in model all-MiniLM-L6-v2: its shape, and its ids of special tokens."""

from __future__ import annotations

from rookery.engines.embedders.bert import BertConfig

MODEL = "all-MiniLM-L6-v2"
DIMENSION = 384
WINDOW_TOKENS = 256
"""Maximum tokens of the model's input, special ones included; as in its sentence_bert_config.json."""
PADDING_ID, CLS_ID, SEP_ID = 0, 101, 102
"""Ids of [PAD], [CLS] and [SEP] in the model's vocabulary."""

CONFIG = BertConfig(
    name=MODEL,
    dimension=DIMENSION,
    layers=6,
    heads=12,
    intermediate=1536,
    vocabulary=30_522,
    window_tokens=WINDOW_TOKENS,
    padding_id=PADDING_ID,
    pooling="mean",
)
