"""Servers and their entries: the file, workspace servers, logins, forwarded headers and the kill switch."""
