"""However the log is cut into batches, the loader shows what a naive replay of it gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.metadata import ClusterImage, MetadataDelta, MetadataLoader, MetadataProvenance
from odradek.protocol.generated.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
)
from odradek.protocol.message import Message

PLAIN = st.one_of(
    st.builds(
        lambda topic, name, value: ConfigRecord(
            resource_type=2, resource_name=topic, name=name, value=value
        ),
        st.sampled_from("abc"),
        st.sampled_from("xy"),
        st.sampled_from(["1", "2", None]),
    ),
    st.builds(
        lambda name, level: FeatureLevelRecord(name=name, feature_level=level),
        st.sampled_from(["f", "g"]),
        st.integers(0, 2),
    ),
    st.builds(NoOpRecord),
)
TRANSACTION = st.tuples(st.lists(PLAIN, max_size=4), st.booleans())
"""Its records, and whether it is committed."""


@pytest.mark.slow
@given(st.lists(st.one_of(PLAIN, TRANSACTION), max_size=12), st.data())
def test_cuts_do_not_matter(
    parts: list[Message | tuple[list[Message], bool]], data: st.DataObject
) -> None:
    log: list[Message] = []
    effective: list[Message] = []
    for part in parts:
        if isinstance(part, Message):
            log.append(part)
            effective.append(part)
            continue
        records, committed = part
        end = EndTransactionRecord() if committed else AbortTransactionRecord()
        log += [BeginTransactionRecord(), *records, end]
        effective += records if committed else []
    loader = MetadataLoader()
    position = 0
    while position < len(log):
        size = data.draw(st.integers(1, 5))
        shown = loader.image
        batch = log[position : position + size]
        position += len(batch)
        update = loader.load(batch, MetadataProvenance(position - 1, 0, 0))
        if update is None:
            assert loader.image is shown, "nothing of an open transaction shows"
        else:
            assert (
                update.delta.features_changed == update.image.changes_since(shown).features_changed
            )
            assert update.delta or update.image == shown
            assert isinstance(update.delta, MetadataDelta)
            assert update.image.provenance.last_offset == position - 1
    assert loader.image == ClusterImage().apply(effective)
