"""One module for each API that a controller serves: ``handle(context, request)``.

The first lines of each say which versions there are and what is not implemented. They do not
import each other.
"""
