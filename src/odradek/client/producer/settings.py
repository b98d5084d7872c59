"""Settings of a producer: Kafka's names and defaults, and what follows from them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.client.errors import ConfigurationError
from odradek.client.settings import COMMON, Definition, Settings
from odradek.records import CompressionType
from odradek.wire.sasl.login import login_from

IN_FLIGHT_IDEMPOTENT_MAX: Final = 5
"""A broker remembers this many batches of a producer: more could not be told from duplicates."""

_BATCHES_IN_ONE: Final = 4
_INT_MAX: Final = 2**31 - 1
_ACKS: Final = {"all": -1, "-1": -1, "0": 0, "1": 1}
_CODECS: Final = {codec.name.lower(): codec for codec in CompressionType}
_LEVELS: Final = {
    CompressionType.GZIP: ("compression.gzip.level", -1, 9),
    CompressionType.LZ4: ("compression.lz4.level", 1, 17),
    CompressionType.ZSTD: ("compression.zstd.level", -131_072, 22),
}

DEFINITIONS: Final[Mapping[str, Definition]] = {
    **COMMON,
    "acks": Definition("all", choices=tuple(_ACKS)),
    "batch.size": Definition(16_384, 0),
    "buffer.memory": Definition(32 * 1024 * 1024, 0),
    "compression.type": Definition("none", choices=tuple(_CODECS)),
    "compression.gzip.level": Definition(-1),
    "compression.lz4.level": Definition(9),
    "compression.zstd.level": Definition(3),
    "delivery.timeout.ms": Definition(120_000, 0),
    "enable.idempotence": Definition(True),
    "linger.ms": Definition(5, 0),
    "max.block.ms": Definition(60_000, 0),
    "max.in.flight.requests.per.connection": Definition(5, 1),
    "max.request.size": Definition(1024 * 1024, 0),
    "partitioner.adaptive.partitioning.enable": Definition(True),
    "partitioner.availability.timeout.ms": Definition(0, 0),
    "partitioner.ignore.keys": Definition(False),
    "retries": Definition(_INT_MAX, 0),
    "transaction.timeout.ms": Definition(60_000, 1),
    "transactional.id": Definition(""),
}


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """The settings in the forms in which they are used; times in milliseconds."""

    acks: int
    batch_size: int
    """When a batch is full and goes out."""
    batch_size_max: int
    """How far a full one grows that cannot go out yet."""
    buffer_memory: int
    codec: CompressionType
    codec_level: int | None
    delivery_timeout_ms: int
    idempotent: bool
    linger_ms: int
    max_block_ms: int
    in_flight_max: int
    max_request_size: int
    metadata_max_age_ms: int
    adaptive: bool
    availability_timeout_ms: int
    ignore_keys: bool
    request_timeout_ms: int
    retries: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    transaction_timeout_ms: int
    transactional_id: str | None


def options_from(settings: Settings) -> ProducerOptions:
    """Check how the settings go together.

    Raises:
        ConfigurationError: They do not.
    """
    login_from(settings)
    codec = _CODECS[settings.text("compression.type")]
    idempotent = _is_idempotent(settings)
    transactional_id = settings.text("transactional.id") or None
    if transactional_id is not None and not idempotent:
        raise ConfigurationError("transactional.id needs enable.idempotence")
    return ProducerOptions(
        acks=_ACKS[settings.text("acks")],
        batch_size=settings.integer("batch.size"),
        batch_size_max=_batch_size_max(settings),
        buffer_memory=settings.integer("buffer.memory"),
        codec=codec,
        codec_level=_level(settings, codec),
        delivery_timeout_ms=_delivery_timeout_ms(settings),
        idempotent=idempotent,
        linger_ms=settings.integer("linger.ms"),
        max_block_ms=settings.integer("max.block.ms"),
        in_flight_max=settings.integer("max.in.flight.requests.per.connection"),
        max_request_size=settings.integer("max.request.size"),
        metadata_max_age_ms=settings.integer("metadata.max.age.ms"),
        adaptive=settings.flag("partitioner.adaptive.partitioning.enable"),
        availability_timeout_ms=settings.integer("partitioner.availability.timeout.ms"),
        ignore_keys=settings.flag("partitioner.ignore.keys"),
        request_timeout_ms=settings.integer("request.timeout.ms"),
        retries=settings.integer("retries"),
        retry_backoff_ms=settings.integer("retry.backoff.ms"),
        retry_backoff_max_ms=settings.integer("retry.backoff.max.ms"),
        transaction_timeout_ms=settings.integer("transaction.timeout.ms"),
        transactional_id=transactional_id,
    )


def _batch_size_max(settings: Settings) -> int:
    """Return the bound on batches: what somebody chose, else more, for fewer and fuller requests.

    Java's client sends many small batches to a partition one by one, each in a request of its own.
    """
    chosen = settings.integer("batch.size")
    if "batch.size" in settings.given:
        return chosen
    return max(chosen, min(_BATCHES_IN_ONE * chosen, settings.integer("max.request.size")))


def _is_idempotent(settings: Settings) -> bool:
    """Whether sequences are used: by default, unless another setting rules them out (KIP-679)."""
    if not settings.flag("enable.idempotence"):
        return False
    problem = None
    if _ACKS[settings.text("acks")] != -1:
        problem = "acks=all"
    elif settings.integer("retries") == 0:
        problem = "retries above 0"
    elif settings.integer("max.in.flight.requests.per.connection") > IN_FLIGHT_IDEMPOTENT_MAX:
        problem = f"max.in.flight.requests.per.connection of {IN_FLIGHT_IDEMPOTENT_MAX} at most"
    is_asked_for = settings.given & {"enable.idempotence", "transactional.id"}
    if problem is not None and is_asked_for:
        raise ConfigurationError(f"an idempotent producer needs {problem}")
    return problem is None


def _delivery_timeout_ms(settings: Settings) -> int:
    """Return it, made long enough for one attempt unless somebody chose it."""
    chosen = settings.integer("delivery.timeout.ms")
    needed = settings.integer("linger.ms") + settings.integer("request.timeout.ms")
    if chosen >= needed:
        return chosen
    if "delivery.timeout.ms" in settings.given:
        raise ConfigurationError(
            f"delivery.timeout.ms of {chosen} is less than linger.ms + request.timeout.ms, {needed}"
        )
    return needed


def _level(settings: Settings, codec: CompressionType) -> int | None:
    if codec not in _LEVELS:
        return None
    name, lowest, highest = _LEVELS[codec]
    if name not in settings.given:
        return None
    level = settings.integer(name)
    if not lowest <= level <= highest or (codec is CompressionType.GZIP and level == 0):
        raise ConfigurationError(f"{name}: {level} is not from {lowest} to {highest}")
    return level
