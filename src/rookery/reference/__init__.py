"""The API documentation that the server generates."""
