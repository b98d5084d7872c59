"""Outgoing connections: clients use them, and brokers and controllers among each other.

``lane``                  one ordered stream of requests to one address, for one purpose
``connection``            one connection: versions, login, requests out and responses back in order
``response_reader``       frames from a byte stream, each in memory of its own
``connection_metrics``    what a connection reports about itself
``connection_settings``   the settings that ``tls`` and ``sasl`` read
``peer_security``         TLS and login towards other nodes, from a node's configs
``tls``                   from ``ssl.…`` settings to an SSL context
``sasl/``                 who we are: PLAIN, SCRAM, OAUTHBEARER
``backoff``               how long to wait before the next try
``errors``                why a request failed
"""
