"""How a client proves who it is: SASL, between the first request of a connection and all others.

``login.py`` takes the settings in, ``exchange.py`` carries tokens to the broker and back; the
mechanisms themselves see bytes alone. Not there: GSSAPI (Kerberos), extensions of OAUTHBEARER, and
tokens fetched from an endpoint (KIP-768): give a function that fetches them.
"""
