"""The size of texts in tokens of a language model, where no tokenizer of it is at hand."""

CHARS_PER_TOKEN = 4
"""Characters of a token in an estimate. It is about right for English, and too high for most other languages and for code."""
