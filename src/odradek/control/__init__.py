"""The controller role: ``odradek.controller`` where the metadata quorum has its leader."""
