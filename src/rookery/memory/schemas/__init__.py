"""Models of the requests and responses of the memory domain."""
