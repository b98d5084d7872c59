"""The metadata quorum with its I/O: what every node has, whatever its roles.

Voters and observers run the same code: they keep ``__cluster_metadata-0``, replicate it through
``odradek.raft``, and turn what is committed into images.
"""
