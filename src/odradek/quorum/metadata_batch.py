"""Records of one atomic change on their way into the metadata log."""

from collections.abc import Iterable

from odradek.metadata.record_versions import VersionedRecord
from odradek.protocol.generated.metadata_records import NoOpRecord
from odradek.records import BatchBuilder


class MetadataBatch:
    def __init__(self, records: Iterable[VersionedRecord], now_ms: int) -> None:
        self._builder = BatchBuilder()
        self._now_ms = now_ms
        self.count = 0
        self.is_no_op = True
        """Whether nothing is in it that anybody may wait for."""
        for record in records:
            self.add(record)

    def add(self, record: VersionedRecord) -> None:
        self._builder.append(self._now_ms, None, record.to_bytes())
        self.count += 1
        self.is_no_op = self.is_no_op and isinstance(record.message, NoOpRecord)

    def build(self) -> bytearray:
        return self._builder.build()
