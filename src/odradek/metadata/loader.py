"""From batches of the metadata log to images that may be shown.

What a broker runs: it feeds committed batches in order and gets an update for each, except inside
a metadata transaction (KIP-868), where there is none until the transaction ends.
"""

from collections.abc import Generator, Iterable

from odradek.metadata.image import (
    ClusterImage,
    ImageBuilder,
    MetadataProvenance,
    MetadataUpdate,
    finish,
)
from odradek.protocol.message import Message


class MetadataLoader:
    def __init__(self, image: ClusterImage | None = None) -> None:
        self.image = image or ClusterImage()
        """The last image that may be shown."""
        self._builder = ImageBuilder(self.image)

    @property
    def in_transaction(self) -> bool:
        return self._builder.in_transaction

    def load(
        self, records: Iterable[Message], provenance: MetadataProvenance
    ) -> MetadataUpdate | None:
        """Replay one committed batch; return None if it leaves a transaction open.

        A control batch has no records of ours: pass none, so that the image keeps up with the
        offset.

        Raises:
            CorruptionError: A record does not fit. The loader cannot go on from there.
        """
        for record in records:
            self.replay(record)
        return finish(self.end_batch(provenance))

    def replay(self, record: Message) -> None:
        """Take one record of a batch, which is not seen before the batch ends.

        Raises:
            CorruptionError: It does not fit. The loader cannot go on from there.
        """
        self._builder.replay(record)

    def end_batch(
        self, provenance: MetadataProvenance
    ) -> Generator[None, None, MetadataUpdate | None]:
        """Return what the records since the last call come to, as ``load`` does, in steps."""
        if self._builder.in_transaction:
            return None
        update = yield from self._builder.build_in_steps(provenance)
        self.image = update.image
        return update

    def load_snapshot(
        self, records: Iterable[Message], provenance: MetadataProvenance
    ) -> MetadataUpdate:
        """Replace the image by a snapshot's; the delta is from the image that was shown before."""
        return finish(self.load_snapshot_in_steps(records, provenance))

    def load_snapshot_in_steps(
        self, records: Iterable[Message], provenance: MetadataProvenance
    ) -> Generator[None, None, MetadataUpdate]:
        """Do what ``load_snapshot`` does; nothing is seen of it before the last step."""
        builder = ImageBuilder(ClusterImage())
        for record in records:
            builder.replay(record)
            yield
        image = (yield from builder.build_in_steps(provenance)).image
        delta = yield from image.changes_since_in_steps(self.image)
        self.image = image
        self._builder = builder
        return MetadataUpdate(image, delta)
