"""
The story that the examples of the documentation are recorded from: each operation of the document, as a user would call it.

`make examples` records it into `src/rookery/reference/examples/`; a test records it again and compares the two.
"""
