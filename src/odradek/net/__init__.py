"""The asyncio transport of the broker: bytes on sockets in, requests to a handler, replies out.

``server``      the public face: Server, with the types it is told things in
``settings``    these types, and the rules a handler keeps
``acceptor``    one listening socket: connection limits, TLS handshakes, no descriptors left
``connection``  one client: requests in order, back-pressure, deadlines. The hot path
``hub``         what the connections of a server share
``tls``         from PEM files to an SSL context
``event_loop``  uvloop where there is one
"""
