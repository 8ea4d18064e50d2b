"""Supervision of upstream sessions: open, monitor, reopen and close."""
