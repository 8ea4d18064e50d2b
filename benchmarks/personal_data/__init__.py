"""
Precision and recall of `brain:clean --strip-pii` for personal data and secrets, on labelled lines.

`python -m benchmarks.personal_data` prints precision and recall by kind: for the sample that the rules were made with, and for lines
written after the last change of a rule and measured once.
"""
