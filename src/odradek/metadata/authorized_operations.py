"""What a client may do with a resource, as a bit field: one bit for each of Kafka's operations.

Requests that describe something report it where they are asked to (KIP-430). There is no
authorizer: a client may do all that a kind of resource has.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final


class AclOperation(IntEnum):
    """The numbers are Kafka's, on the wire and in ACLs."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def _bits(operations: Iterable[AclOperation]) -> int:
    return sum(1 << operation for operation in operations)


_CONFIGS: Final = (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)

NOT_ASKED_FOR: Final = -(2**31)
TOPIC_OPERATIONS: Final = _bits(
    (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        *_CONFIGS,
    )
)
GROUP_OPERATIONS: Final = _bits(
    (AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE, *_CONFIGS)
)
CLUSTER_OPERATIONS: Final = _bits(
    (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.IDEMPOTENT_WRITE,
        *_CONFIGS,
    )
)
