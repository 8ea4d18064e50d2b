"""
A data folder as one file: `rookery backup` while the server runs, and `rookery restore` into an empty folder.

The package works on files and not on the platform, so it can also save a store that this version would have to migrate first.
"""
