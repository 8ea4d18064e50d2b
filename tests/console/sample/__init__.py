"""A sample workspace, for pictures of the console and for tests that look at every page."""
