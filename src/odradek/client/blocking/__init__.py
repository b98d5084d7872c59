"""Producer, Consumer and Admin for programs without an event loop: the same methods, without await.

``loop_thread``  a thread with an event loop; what may happen to it: Ctrl-C, fork, exit
``twin``         what all blocking clients share
``sending``      a producer's send, which must not cost a change of threads for each record
``polling``      a consumer's listeners, which may block

The classes themselves are generated from their asyncio twins by ``tools/blocking_twins.py``.
"""
