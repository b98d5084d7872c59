"""Compaction: of each key the newest value stays, at its old offset, in its old order.

A log that is compacted has a clean part and a dirty part; the ``cleaner-offset-checkpoint`` says
where the one ends. One cleaning goes like this::

    selection     main process     which log is the filthiest, and how far it may be cleaned
    task          main process     all that the work needs to know, as plain values
    worker        another process  runs the task, because it computes for minutes
      cleaning                       1. newest offset of each key of the dirty part -> offset_map
        source                       2. every segment before the clean end is filtered …
        filtering                       … batch by batch …
        transactions                    … with an eye on who committed and who did not …
        grouping                        … into ``.cleaned`` files, small neighbours into one
    swap          main process     the new segments take the place of the old ones
    log_cleaner   main process     holds these together and keeps the checkpoint

The rules, Kafka's unless said otherwise:

- Only closed segments that lie wholly before the last stable offset are cleaned.
- A record stays if no newer one with its key is in the dirty part as far as the map reached. What
  has no key goes. What was aborted goes. What lies behind the clean end is copied as it is.
- A tombstone that is the newest of its key stays for ``delete.retention.ms`` after the cleaning
  that saw it first. That cleaning writes the time at which it may go, the delete horizon, into its
  batch (KIP-534). Markers of transactions go the same way, once all else of them is gone.
- A batch that tells of a producer's last sequence stays even if nothing is left in it. So does the
  last one of a segment, so that there are no gaps between segments.
- Offsets, timestamps, producer fields, leader epochs and codecs stay as they are. Messages of the
  formats v0 and v1 become batches v2.

Where we differ from Kafka is said in ``filtering`` and ``cleaning``.
"""
