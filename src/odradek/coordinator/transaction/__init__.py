"""The transaction coordinator: who may produce under a transactional id, and how it ends.

A pure plan / replay machine over the records of one partition of ``__transaction_state``.
"""
