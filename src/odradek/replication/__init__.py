"""Replication of partitions: the leader's half and the follower's half. Pure.

A leader knows of each follower how far it has fetched, and from that how much is committed
(``leadership``) and who is in sync (``isr``). A follower knows what to fetch next and what to do
with an answer (``following``, ``truncation``). Neither has bytes, a clock or a connection: they see
a log through ``replica_log``, time is an argument, and what they want done is returned. The broker
does it (``broker/partition.py``, ``broker/fetchers.py``, ``broker/isr_proposals.py``), and
``tests/simulation/replication`` does it with logs that are lists.
"""
