"""Which record codec is in use: the compiled one if it was built, else the plain-Python one.

Both have the same names and the same behaviour. There is no warning on import, a library should
not make one: ``odradek.records.COMPILED`` tells, and ``make setup`` says it in words.
"""

from typing import Final

try:
    from odradek.records._compiled import (
        ColumnDecoder,
        ColumnEncoder,
        OpenBatch,
        RecordEncoder,
        find_refused,
        iter_records,
        murmur2,
        partitions_of_keys,
        summarize_records,
    )

    _compiled = True
except ImportError:
    from odradek.records.codec import (  # type: ignore[assignment]
        RecordEncoder,
        find_refused,
        iter_records,
        summarize_records,
    )
    from odradek.records.column_codec import (  # type: ignore[assignment]
        ColumnDecoder,
        ColumnEncoder,
    )
    from odradek.records.key_hash import murmur2, partitions_of_keys
    from odradek.records.open_batch import OpenBatch  # type: ignore[assignment]

    _compiled = False

COMPILED: Final[bool] = _compiled

__all__ = [
    "COMPILED",
    "ColumnDecoder",
    "ColumnEncoder",
    "OpenBatch",
    "RecordEncoder",
    "find_refused",
    "iter_records",
    "murmur2",
    "partitions_of_keys",
    "summarize_records",
]
