"""Broker configs: the transaction coordinator.

The notation is explained in ``odradek.core.config.definition``.
"""

from typing import Final

TABLE: Final = """
transaction.max.timeout.ms INT 900000 1.. live
    The longest timeout a producer may ask for its transactions.
transaction.state.log.num.partitions INT 50 1.. live
    Partitions of __transaction_state.
transaction.state.log.replication.factor SHORT 3 1.. live
    Replicas of __transaction_state.
transaction.state.log.min.isr INT 2 1.. live
    The min.insync.replicas of __transaction_state.
transaction.state.log.segment.bytes INT 104857600 1.. live
    The segment size of __transaction_state.
transaction.state.log.load.buffer.size INT 5242880 1..
    Bytes read at a time when transactions are loaded.
transaction.abort.timed.out.transaction.cleanup.interval.ms INT 10000 1.. live
    How often transactions that ran out of time are aborted.
transaction.remove.expired.transaction.cleanup.interval.ms INT 3600000 1.. live
    How often forgotten transactional ids are removed.
transaction.partition.verification.enable BOOLEAN true cluster-wide live
    Whether a write is checked to belong to a transaction under way.
transaction.two.phase.commit.enable BOOLEAN false live
    Whether producers may prepare transactions that never time out.
transactional.id.expiration.ms INT 604800000 1.. live
    How long an unused transactional id is remembered.
add.partitions.to.txn.retry.backoff.ms INT 20 1.. live
    How long a write waits for the markers of the transaction before, a time.
add.partitions.to.txn.retry.backoff.max.ms INT 100 0.. live
    How long it waits for them in all.
"""
