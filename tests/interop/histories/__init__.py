"""Real clients at work on one broker, with everything they do written down for the checker.

Topics ``in`` and ``out``. Each client is a thread with chances of its own from one seed:

- ``PlainSender``    an idempotent producer, many sends in flight
- ``Transactor``     transactions over several partitions; aborts, crashes, comes back as a zombie
- ``AioTransactor``  the same with aiokafka, without the zombies
- ``Copier``         consumes, transforms, produces; its offsets are part of its transactions
- ``Poller``         reads everything, read_committed or not, and now and then seeks back

Values are unique. What a client does not know for sure it records as of unknown outcome.
"""
