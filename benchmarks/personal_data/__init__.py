"""
How well `brain:clean --strip-pii` finds personal data and secrets, on our own labelled lines.

`python -m benchmarks.personal_data` prints precision and recall by kind: of the sample, by which the rules were made, and of lines that
were written after the last change of a rule and measured once.
"""
