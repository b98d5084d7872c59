"""One module per API: which versions, what each added, what is knowingly missing; ``handle``.

A handler maps wire structs to calls of the node and back; it holds no state and does not know the
others. Errors of single topics and partitions become data in one place per handler.
"""
