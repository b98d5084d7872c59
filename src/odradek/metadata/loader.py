"""From batches of the metadata log to images that may be shown.

What a broker runs: it feeds committed batches in order and gets an update for each, except inside
a metadata transaction (KIP-868), where there is none until the transaction ends.
"""

from collections.abc import Iterable

from odradek.metadata.image import ClusterImage, ImageBuilder, MetadataProvenance, MetadataUpdate
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
            self._builder.replay(record)
        if self._builder.in_transaction:
            return None
        update = self._builder.build(provenance)
        self.image = update.image
        return update

    def load_snapshot(
        self, records: Iterable[Message], provenance: MetadataProvenance
    ) -> MetadataUpdate:
        """Replace the image by a snapshot's; the delta is from the image that was shown before."""
        image = ClusterImage().apply(records, provenance)
        update = MetadataUpdate(image, image.changes_since(self.image))
        self.image = image
        self._builder = ImageBuilder(image)
        return update
