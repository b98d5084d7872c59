"""A cluster of real nodes in one process, for tests that break it.

``cluster``      the cluster: topics, leaders, cuts of the network, waiting
``node``         one of its nodes, through all its lives: kill, pause, restart; its disk and clock
``node_thread``  one life of a node, on a thread with an event loop of its own
``wiring``       who is connected to whom, and what is cut
``asking``       what the nodes say of the cluster over the wire
"""
