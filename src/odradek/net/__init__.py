"""The asyncio transport of the broker: bytes on sockets in, requests to a handler, replies out.

``server``      the public face: Server, with the types it is told things in
``settings``    these types, and the rules a handler keeps
``network``     the port to a network: what a listener needs of one
``sockets``     the real one: listening sockets, no descriptors left
``acceptor``    one listener: connection limits, TLS handshakes
``connection``  one client: requests in order, back-pressure, deadlines. The hot path
``hub``         what the connections of a server share
``tls``         from PEM files to an SSL context
``event_loop``  uvloop where there is one
"""
