"""The official conformance suite, through Rookery."""
