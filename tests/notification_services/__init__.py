"""Answers of real services of notifications: recorded with their versions, played by tests, and recorded again from a real Postfix."""
