"""
A form for a value that a JSON Schema describes, such as the arguments of a tool. No I/O.

The value is JSON. The form is a view of it: what the form cannot show stays in the value, and an unchanged control changes nothing.
"""
