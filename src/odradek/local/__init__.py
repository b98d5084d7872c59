"""Clusters of processes on one machine: what ``odradek up``, ``down`` and ``local`` do."""
