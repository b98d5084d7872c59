"""The table of APIs: keys, names, versions, and where their messages are.

Importing this imports no message: a module of codecs loads when the first request of its kind
comes (:meth:`Api.request`, :func:`message_class`).
"""

from functools import cache
from importlib import import_module
from typing import Final, NamedTuple

from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.protocol.generated import APIS, MESSAGES
from odradek.protocol.message import Message

API_VERSIONS_KEY: Final = 18


class Api(NamedTuple):
    key: int
    name: str
    module: str
    version_min: int
    version_max: int
    version_known_min: int
    """Below ``version_min`` where the codec still knows what Kafka 4 dropped."""
    version_stable_max: int
    """Below ``version_max`` where Kafka does not advertise the newest version yet."""
    flexible_from: int

    def request(self) -> type[Message]:
        return message_class(f"{self.name}Request")

    def response(self) -> type[Message]:
        return message_class(f"{self.name}Response")

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from

    def response_header_version(self, version: int) -> int:
        """Return 1 where the header has tagged fields.

        Never for ApiVersions: a client must be able to read the answer of a broker that does not
        know the version it asked for, so it cannot depend on the version (KIP-511).
        """
        return 1 if self.is_flexible(version) and self.key != API_VERSIONS_KEY else 0

    def check_known(self, version: int) -> None:
        """Raise UNSUPPORTED_VERSION for a version that no codec here knows."""
        if not self.version_known_min <= version <= self.version_max:
            known = f"{self.version_min}-{self.version_max}"
            problem = f"{self.name} version {version}, known are {known}"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, problem)


ALL_APIS: Final = tuple(Api(*row) for row in APIS)
_BY_KEY: Final = {api.key: api for api in ALL_APIS}
_BY_NAME: Final = {api.name: api for api in ALL_APIS}


def api_for_key(key: int) -> Api:
    """Return the API with a key that came over the wire.

    Raises:
        CorruptionError: There is none. Kafka hangs up too: without knowing the API there is no
            response the client could parse.
    """
    api = _BY_KEY.get(key)
    if api is None:
        raise CorruptionError(f"unknown API key {key}")
    return api


def api_named(name: str) -> Api:
    return _BY_NAME[name]


@cache
def message_class(name: str) -> type[Message]:
    """Return the class of a message, for example ``ProduceRequest`` or ``GroupMetadataValue``."""
    module = import_module(f"odradek.protocol.generated.{MESSAGES[name]}")
    found: type[Message] = getattr(module, name)
    return found
