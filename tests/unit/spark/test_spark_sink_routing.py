"""Where rows go, and which are put aside."""

import pyarrow as pa

from odradek.client.producer.partitioners import partition_for_key
from odradek.core.ids import TopicPartition
from odradek.spark.sink_routing import Routed, Router, TopicPartitions
from odradek.spark.sink_rows import Rows, rows_from

FOUR = TopicPartitions(4, [0, 1, 2, 3])
HEADERS = pa.list_(pa.struct([("k", pa.string()), ("v", pa.binary())]))


def rows_of(first: int = 0, **columns: pa.Array) -> Rows:
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    return rows_from(batch, first, with_topic=True)


def router(
    topic: str | None = "t", *, first: int = 0, stick: int = 10**6, row: int = 10**6
) -> Router:
    return Router(topic, first=first, stick_bytes=stick, row_bytes_max=row)


def placed(routed: Routed) -> dict[TopicPartition, list[bytes | None]]:
    return {where: rows.table.column("value").to_pylist() for where, rows in routed.parts}


def test_keys_go_where_java_puts_them_in_their_order() -> None:
    keys = [f"k{n % 5}" for n in range(40)]
    values = [f"v{n}" for n in range(40)]
    routed = router().route(rows_of(key=pa.array(keys), value=pa.array(values)), {"t": FOUR})
    expected: dict[TopicPartition, list[bytes]] = {}
    for key, value in zip(keys, values, strict=True):
        where = TopicPartition("t", partition_for_key(key.encode(), 4))
        expected.setdefault(where, []).append(value.encode())
    assert placed(routed) == expected
    assert not routed.bad


def test_a_partition_column_wins_over_the_key_where_it_is_not_null() -> None:
    partition = pa.array([3, None, 0], pa.int32())
    rows = rows_of(
        value=pa.array(["a", "b", "c"]), key=pa.array(["x", "x", "x"]), partition=partition
    )
    by_key = partition_for_key(b"x", 4)
    found = placed(router().route(rows, {"t": FOUR}))
    assert found[TopicPartition("t", 3)] == [b"a"]
    assert b"b" in found[TopicPartition("t", by_key)]
    assert b"c" in found[TopicPartition("t", 0)]


def test_rows_without_a_key_stick_until_a_batch_is_full() -> None:
    sticky = router(first=2, stick=2000)
    values = pa.array([b"x" * 1000] * 6)
    first = sticky.route(rows_of(value=values), {"t": FOUR})
    assert {where.partition: len(rows) for where, rows in first.parts} == {2: 2, 3: 2, 0: 2}
    again = sticky.route(rows_of(value=pa.array([b"y"])), {"t": TopicPartitions(4, [1, 3])})
    assert [where.partition for where, _ in again.parts] == [3]


def test_each_row_to_the_topic_that_it_names() -> None:
    rows = rows_of(value=pa.array(["1", "2", "3", "4"]), topic=pa.array(["b", None, "a", "b"]))
    chosen = router(None)
    assert chosen.topics_of(rows) == ["b", "a"]
    one = TopicPartitions(1, [0])
    routed = chosen.route(rows, {"a": one, "b": one})
    assert placed(routed) == {TopicPartition("b", 0): [b"1", b"4"], TopicPartition("a", 0): [b"3"]}
    assert [(bad.number, bad.topic, bad.reason) for bad in routed.bad] == [
        (1, None, "null topic present in the data. Use the topic option for setting a topic.")
    ]


def test_bad_rows_are_named_by_their_number_in_the_task() -> None:
    headers = pa.array([None, [{"k": None, "v": b""}], [], [{"k": "h", "v": b"w"}], None], HEADERS)
    rows = rows_of(
        first=100,
        value=pa.array([b"fine", b"b", b"x" * 500, b"d", b"e"]),
        headers=headers,
        partition=pa.array([1, 1, 1, 4, -1], pa.int32()),
    )
    routed = router(row=400).route(rows, {"t": FOUR})
    assert placed(routed) == {TopicPartition("t", 1): [b"fine"]}
    told = [(bad.number, bad.reason, bad.partition, bad.is_too_large) for bad in routed.bad]
    assert [each[0] for each in told] == [101, 102, 103, 104]
    assert told[0][1:] == ("a header has no key", None, False)
    assert told[1][1].startswith("a record of 5")
    assert told[1][3]
    assert told[2][1:] == ("t has no partition 4: it has 4", 4, False)
    assert told[3][1:] == ("t has no partition -1: it has 4", -1, False)
    assert routed.bad[2].headers == [("h", b"w")]
    assert routed.bad[2].value == b"d"


def test_all_rows_of_a_topic_that_is_not_there_are_bad() -> None:
    rows = rows_of(value=pa.array(["1", "2"]), topic=pa.array(["gone", "t"]))
    routed = router(None).route(rows, {"gone": "there is no such topic", "t": FOUR})
    assert [(bad.number, bad.topic, bad.reason) for bad in routed.bad] == [
        (0, "gone", "there is no such topic")
    ]
    assert placed(routed) == {TopicPartition("t", 0): [b"2"]}


def test_headers_are_counted_in_the_size_of_a_row() -> None:
    headers = pa.array([[{"k": "abc", "v": b"x" * 300}], None], HEADERS)
    rows = rows_of(value=pa.array(["v", "v"]), headers=headers)
    large, small = rows.sizes().tolist()
    assert 303 <= large - small <= 330
