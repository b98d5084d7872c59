"""Classic groups: members join, their leader assigns, the coordinator only passes it on."""
