"""Groups of the consumer protocol (KIP-848): the coordinator assigns, members reconcile.

A group goes through three epochs that follow one another. The *group epoch* grows when something
changes that an assignment depends on. The *assignment epoch* is the group epoch for which the
target assignment was computed. A *member epoch* is the assignment epoch up to which a member has
been reconciled: it first gives up what it must, then advances, then receives what has become free.
"""
