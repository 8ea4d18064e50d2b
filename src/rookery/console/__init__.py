"""The console: HTML pages for people, at `/console`. It is a client of the API in the same process."""
