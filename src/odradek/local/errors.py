"""Why something about a local cluster cannot be done: one line, with what to do next."""

from odradek.core.errors import OdradekError


class LocalClusterError(OdradekError):
    """The message is all there is to say."""
