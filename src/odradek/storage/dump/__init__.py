"""What ``kafka-dump-log`` prints about the files of a log, as generators of lines.

``dump`` is the way in; ``run`` has it. Everything is read through a port that cannot write
(``read_only``), and no index or log object of this package is opened: those repair what they open.

=================  =============================================================================
``log_lines``      ``.log`` and ``.checkpoint``: one line for a batch, one for a record
``index_lines``    ``.index`` and ``.timeindex``, checked against their log
``state_lines``    ``.txnindex`` and ``.snapshot``
``findings``       what the checks found; told on stderr when all files are done
``decoders``       keys and values as text: strings, records of the internal topics
``message_json``   messages as the JSON of Kafka's converters
=================  =============================================================================

The words are those of DumpLogSegments in Kafka 4.3, to the letter where scripts can see them, and
``tests/golden/storage`` holds its output. Where Kafka's tool dies of an exception, one line on
stderr says what is wrong and the next file follows.
"""

from odradek.storage.dump.decoders import decoder_for
from odradek.storage.dump.options import DumpOptions, Line
from odradek.storage.dump.read_only import ReadOnlyDisk
from odradek.storage.dump.run import dump

__all__ = ["DumpOptions", "Line", "ReadOnlyDisk", "decoder_for", "dump"]
