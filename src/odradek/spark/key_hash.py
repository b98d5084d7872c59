"""Kafka's hash of keys, for a whole column of them at once. Hot path (``bench/spark_sink.py``).

``odradek.client.producer.partitioners.murmur2`` is the same for one key, and the reference. Here
all keys advance together, word by word: ordered by length, those that still have a word are always
the first ones, so the number of steps is that of the longest key, whatever the others are.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_SEED: Final = np.uint32(0x9747B28C)
_MULTIPLIER: Final = np.uint32(0x5BD1E995)

Numbers = NDArray[Any]


def partitions_of_keys(keys: pa.Array, partitions: int) -> Numbers:
    """Return the partition of each key, as Java's client chooses it; keys are large_binary."""
    return (murmur2_column(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions


def murmur2_column(keys: pa.Array) -> Numbers:
    """Return the hash of each key as an unsigned 32-bit number; nulls count as empty keys."""
    count = len(keys)
    _, ends_buffer, data_buffer = keys.buffers()
    ends = np.frombuffer(ends_buffer, np.int64, count + 1, keys.offset * 8)
    first, size = int(ends[0]), int(ends[-1] - ends[0])
    # A few bytes behind the last key: the last word of a key is read whole, then cut.
    data = np.zeros(size + 4, np.uint8)
    if size:
        data[:size] = np.frombuffer(data_buffer, np.uint8, size, first)
    lengths = np.diff(ends)
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = ends[:-1][order] - first, lengths[order]
    with np.errstate(over="ignore"):
        states = _mixed(data, starts, lengths)
    hashes = np.empty(count, np.uint32)
    hashes[order] = states
    return hashes


def _mixed(data: Numbers, starts: Numbers, lengths: Numbers) -> Numbers:
    """Hash keys that are ordered by length, the longest first."""
    states = _SEED ^ lengths.astype(np.uint32)
    words = lengths >> 2
    for number in range(int(words[0]) if len(words) else 0):
        still = int(np.searchsorted(-words, -number, side="left"))
        mixed = _word(data, starts[:still] + 4 * number) * _MULTIPLIER
        mixed = (mixed ^ mixed >> np.uint32(24)) * _MULTIPLIER
        states[:still] = states[:still] * _MULTIPLIER ^ mixed
    rest = (lengths & 3).astype(np.uint32)
    tails = _word(data, starts + 4 * words) & ((np.uint32(1) << rest * np.uint32(8)) - np.uint32(1))
    states = np.where(rest > 0, (states ^ tails) * _MULTIPLIER, states)
    states = (states ^ states >> np.uint32(13)) * _MULTIPLIER
    return states ^ states >> np.uint32(15)


def _word(data: Numbers, positions: Numbers) -> Numbers:
    """Return the little-endian word at each position."""
    word = data[positions].astype(np.uint32)
    for byte in (1, 2, 3):
        word |= data[positions + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word
