"""
The story that the documentation's examples are taken of: each operation of the document, asked as a user would.

`make examples` plays it and writes `src/rookery/reference/examples/`; a test plays it again and holds it against what was written.
"""
