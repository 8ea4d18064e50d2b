"""Sycophancy scoring of answers: praise, validation, missing pushback, capitulation and stance shift. Pure Python, no I/O after loading."""
