"""The command line, ``odradek …``: parse, make one call, render. No logic lives here."""
