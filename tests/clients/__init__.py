"""Clients that generators make of the API description: `make test-clients`."""
