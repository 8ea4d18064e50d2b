"""Scores of texts: the probability that a model wrote them, and sycophancy. Texts are not stored."""
