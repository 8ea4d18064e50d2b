"""
A data folder as one file, and back: `rookery backup` beside a server at work, `rookery restore` into an empty folder (D-04).

It stands on files, not on the platform put together: so it also saves a store that this version would have to migrate first.
"""
