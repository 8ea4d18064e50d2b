"""Agent sessions: start, resume, events, streams, hand-offs, end and clean-up (D-53, D-62)."""
