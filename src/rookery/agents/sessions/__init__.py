"""Agent sessions: start, resume, events, streams, hand-offs, end and clean-up."""
