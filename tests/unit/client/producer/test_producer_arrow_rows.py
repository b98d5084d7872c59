"""Tables as rows to send: which columns, in which chunks, and which row goes where."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.client.producer import arrow_rows
from odradek.client.producer.arrow_rows import RowChunk, chunks_of
from odradek.client.producer.partitioners import partition_for_key
from odradek.client.producer.row_batch import ColumnNames
from odradek.records import record_size_max
from odradek.records.arrow import SCHEMA_WITH_HEADERS

NAMES = ColumnNames()
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TABLES = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=9),
        st.none() | st.binary(max_size=30),
        st.none() | st.integers(0, 4),
        st.none() | st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3))),
    ),
    max_size=30,
)


def table_of(rows: list[Any]) -> pa.Table:
    headers = [
        None if each is None else [{"key": key, "value": value} for key, value in each]
        for *_, each in rows
    ]
    return pa.table(
        {
            "key": pa.array([key for key, *_ in rows], pa.binary()),
            "value": pa.array([value for _, value, *_ in rows], pa.binary()),
            "partition": pa.array([partition for _, _, partition, _ in rows], pa.int32()),
            "headers": pa.array(headers, HEADERS),
        }
    )


def places(chunks: list[RowChunk], partitions: int, **how: Any) -> dict[int | None, list[int]]:
    """Return the numbers of rows by partition."""
    found: dict[int | None, list[int]] = {}
    for chunk in chunks:
        for group in chunk.groups(partitions, **how):
            rows = range(group.rows) if group.order is None else group.order.to_pylist()
            assert len(rows) == group.rows
            found.setdefault(group.partition, []).extend(chunk.first_row + row for row in rows)
    return found


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(TABLES, st.integers(1, 7), st.integers(0, 3), st.integers(1, 9))
def test_rows_go_where_their_column_or_their_key_says_and_stay_in_order(
    rows: list[Any], partitions: int, cut: int, piece: int
) -> None:
    table = table_of(rows).slice(cut)
    table = pa.concat_tables(
        [table.slice(n, piece) for n in range(0, len(table), piece)] or [table]
    )
    expected: dict[int | None, list[int]] = {}
    for number, (key, _, partition, _) in enumerate(rows[cut:]):
        if partition is None and key is not None:
            partition = partition_for_key(key, partitions)
        expected.setdefault(partition, []).append(number)
    assert places(chunks_of(table, NAMES), partitions) == expected


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(TABLES, st.integers(0, 3))
def test_the_widest_row_is_found(rows: list[Any], cut: int) -> None:
    rows = rows[cut:]
    sizes = [record_size_max(key, value, headers or ()) for key, value, _, headers in rows]
    for chunk in chunks_of(
        table_of([(None, b"x" * 99, None, None)] * cut + rows).slice(cut), NAMES
    ):
        size, row = chunk.widest_row()
        assert size == max(sizes)
        assert sizes[row] == size


def test_many_small_chunks_become_few_and_large_ones_are_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = pa.concat_tables([pa.table({"value": [b"%d" % n]}) for n in range(100)])
    (chunk,) = chunks_of(small, NAMES)
    assert chunk.columns.column("value").to_pylist() == [b"%d" % n for n in range(100)]
    monkeypatch.setattr(arrow_rows, "CHUNK_ROWS_MAX", 30)
    assert [(each.first_row, len(each.columns)) for each in chunks_of(small, NAMES)] == [
        (0, 30), (30, 30), (60, 30), (90, 10),
    ]  # fmt: skip
    whole = small.combine_chunks()
    assert [each.first_row for each in chunks_of(whole, NAMES)] == [0, 30, 60, 90]


def test_what_a_consumer_polls_can_be_sent() -> None:
    empty = SCHEMA_WITH_HEADERS.empty_table()
    assert chunks_of(empty, NAMES) == []
    (chunk,) = chunks_of(
        pa.Table.from_pylist([{"value": b"v", "partition": 3}], SCHEMA_WITH_HEADERS), NAMES
    )
    assert set(chunk.columns.schema.names) == {"key", "value", "headers", "timestamp"}
    assert places([chunk], 9) == {3: [0]}


def test_columns_have_other_names_or_are_left_out() -> None:
    table = pa.table({"id": ["a"], "body": ["b"], "partition": [4], "key": [b"k"]})
    names = NAMES._replace(key="id", value="body", partition=None)
    (chunk,) = chunks_of(table.to_batches()[0], names)
    assert chunk.columns.to_pylist() == [{"value": b"b", "key": b"a"}]
    assert places([chunk], 5) == {partition_for_key(b"a", 5): [0]}
    assert places([chunk], 5, ignore_keys=True) == {None: [0]}


def test_a_partitioner_of_ones_own_is_asked_for_rows_without_a_partition() -> None:
    table = table_of([(b"k", b"v", None, None), (None, b"w", 2, None), (None, None, None, None)])
    asked: list[object] = []

    def choose(key: bytes | None, value: bytes | None) -> int:
        asked.append((key, value))
        return 1

    assert places(chunks_of(table, NAMES), 3, partitioner=choose) == {1: [0, 2], 2: [1]}
    assert asked == [(b"k", b"v"), (None, None)]


@pytest.mark.parametrize(
    ("table", "names", "problem"),
    [
        ([b"row"], NAMES, (TypeError, "Table or RecordBatch")),
        (pa.table({"v": [b""]}), NAMES, (ValueError, "no column value")),
        (pa.table({"value": [b""]}), NAMES._replace(key="k"), (ValueError, "no column k")),
        (pa.table([[b""], [b""]], ["value", "value"]), NAMES, (ValueError, "2 times")),
        (pa.table({"value": [1.5]}), NAMES, (TypeError, "column value")),
        (pa.table({"value": [b""], "key": [[1]]}), NAMES, (TypeError, "column key")),
        (pa.table({"value": [b""], "partition": ["0"]}), NAMES, (TypeError, "partition")),
        (pa.table({"value": [b""], "partition": [2**40]}), NAMES, (ValueError, "partition")),
    ],
)
def test_what_cannot_be_sent_is_said(
    table: Any, names: ColumnNames, problem: tuple[type[Exception], str]
) -> None:
    with pytest.raises(problem[0], match=problem[1]):
        chunks_of(table, names)


@pytest.mark.parametrize(
    "column",
    [
        {"partition": [0, -1]},
        {"headers": pa.array([[], [{"key": None, "value": b""}]], HEADERS)},
    ],
)
def test_rows_that_no_batch_takes_are_refused(column: dict[str, Any]) -> None:
    (chunk,) = chunks_of(pa.table({"value": [b"", b""], **column}), NAMES)
    with pytest.raises(ValueError):
        chunk.check()


def test_a_null_header_key_outside_the_rows_is_nobodys_problem() -> None:
    headers = pa.array(
        [[{"key": None, "value": b""}], [{"key": "a", "value": None}], None], HEADERS
    )
    table = pa.table({"value": [b"", b"", b""], "headers": headers}).slice(1)
    (chunk,) = chunks_of(table, NAMES)
    chunk.check()
    as_map = pa.array([[("a", b"x")], None], pa.map_(pa.string(), pa.binary()))
    (chunk,) = chunks_of(pa.table({"value": [b"", b""], "headers": as_map}), NAMES)
    chunk.check()
    assert chunk.widest_row() == (record_size_max(None, b"", [("a", b"x")]), 0)
