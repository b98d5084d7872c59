"""Being a member of a group, in Kafka's two protocols for it.

``classic``             joins, synchronizes, heartbeats; the members' leader assigns. Pure …
``classic_group``       … and its shell
``consumer_protocol``   heartbeats only; the coordinator assigns (KIP-848). Pure …
``consumer_group``      … and its shell
``standing``            whether a member may commit, and as whom
``rebalance``           what both shells do to the subscription, and who is told
"""
