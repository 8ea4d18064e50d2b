"""Clients generated from the API description: `make test-clients`."""
