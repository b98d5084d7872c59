"""What a known producer costs per batch. Run with ``-s`` to see it."""

from pathlib import Path
from time import process_time
from typing import Final

from odradek.records.batch import BatchHeader
from odradek.storage.disk import OsDisk
from odradek.storage.producer_state import AppendOrigin, ProducerStates

BATCHES: Final = 5000
MICROSECONDS_MAX: Final = 10  # 1.1 measured; this much more is a mistake and not a busy machine


def microseconds_per_batch(folder: Path) -> float:
    states = ProducerStates(
        OsDisk(), folder, producer_id_expiration_ms=10**9, transaction_timeout_ms_max=10**9
    )
    place = (100, 0, 2, 0, 0, 9, 10**12, 10**12, 70_000, 3)
    headers = [BatchHeader(10 * i, *place, 10 * i, 10, 0) for i in range(BATCHES)]
    start = process_time()
    for header in headers:
        assert states.find_duplicate(header) is None
        states.check(header, AppendOrigin.CLIENT)
        states.apply(header, 10**12)
    return (process_time() - start) * 1e6 / BATCHES


def test_a_batch_of_a_known_producer_costs_little(tmp_path: Path) -> None:
    cost = min(microseconds_per_batch(tmp_path) for _ in range(10))
    print(f"find_duplicate + check + apply: {cost:.2f} µs")
    assert cost < MICROSECONDS_MAX
