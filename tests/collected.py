"""What every run of the tests holds until its end: 16,000 tests, and the modules of these."""

import gc


def freeze() -> None:
    """Keep it out of the garbage collector's way.

    A full collection goes through half a million objects otherwise: 0.3 s, hundreds of times. And
    Python begins one only when a quarter of what it knows is new, so that the cycles of a hundred
    tests, with their disks in memory, would be there together: gigabytes.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # this one counts what is left, and the next begins when there is a quarter more
