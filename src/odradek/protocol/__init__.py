"""Kafka's wire protocol: what every message looks like in every version, and how it is framed.

``apis``       which APIs and versions there are; finds message classes without importing them all
``framing``    size prefix and headers: from a byte stream to requests and back
``message``    what all message classes can do: decode, encode
``versioned``  internal records that carry their own version or type
``primitives`` the uncommon half of reading and writing fields
``definitions``  the source of it all, in the notation of tools/notation.py
``generated``  one module per definition file, made by ``make gen``
"""
