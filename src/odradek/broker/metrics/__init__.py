"""What a node can tell about itself, in the names that dashboards for Kafka know.

Plain counters are kept where things happen (``requests``, ``traffic``), always; everything else is
read off the node's state when somebody asks. ``registry`` puts it together as families of samples,
``exposition`` writes them as text, ``endpoint`` serves that over HTTP. What clients push (KIP-714)
is taken by ``client_metrics``. All names are listed in docs/metrics.md.
"""
