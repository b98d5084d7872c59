"""SASL on listeners, the server's side: who a client is, before it may ask for anything.

``exchange``     the order of requests: SaslHandshake, SaslAuthenticate, and again later (KIP-368)
``mechanisms``   what a mechanism is, and PLAIN
``scram``        SCRAM-SHA-256 and SCRAM-SHA-512

Sans-IO: frames in, replies and a principal out. The client's side is ``odradek.wire.sasl``.
"""
