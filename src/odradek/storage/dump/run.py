"""One run of the tool: the files one after the other, then what the checks found."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import PurePath
from typing import Final

from odradek.core.errors import CorruptionError, OdradekError
from odradek.storage.dump.dumped_file import DumpedFile
from odradek.storage.dump.findings import Findings
from odradek.storage.dump.index_lines import offset_index_lines, time_index_lines
from odradek.storage.dump.log_lines import log_lines, log_title
from odradek.storage.dump.options import DumpOptions, Line
from odradek.storage.dump.read_only import ReadableDisk, ReadableFile
from odradek.storage.dump.state_lines import producer_snapshot_lines, transaction_index_lines

_FIRST_LOG: Final = "00000000000000000000.log"


def dump(
    files: Iterable[str], options: DumpOptions, *, disk: ReadableDisk, working_folder: PurePath
) -> Iterator[Line]:
    """Dump files, each by what its suffix says it is.

    Nothing is raised for what is in them, or for one that is missing: that is a failure line, and
    the next file follows.
    """
    findings = Findings()
    for argument in files:
        name = DumpedFile.named(argument, working_folder)
        yield Line(f"Dumping {name.text}")
        try:
            yield from _file_lines(name, options, disk, findings)
        except OdradekError as error:
            yield Line(f"{name.text}: {error}", is_problem=True, is_failure=True)
        except OSError as error:
            culprit = error.filename or name.text
            yield Line(f"{culprit}: {error.strerror}", is_problem=True, is_failure=True)
    for text in findings.lines():
        yield Line(text, is_problem=True)


def _file_lines(
    name: DumpedFile, options: DumpOptions, disk: ReadableDisk, findings: Findings
) -> Iterator[Line]:
    with ExitStack() as stack:
        match name.suffix:
            case ".log" | ".checkpoint":
                yield Line(log_title(name))
                file = stack.enter_context(_opened(disk, name.path))
                yield from map(Line, log_lines(name, file, options, findings))
            case ".index":
                # The index before its log: whatever is indexed by now is in the log by then.
                file = stack.enter_context(_opened(disk, name.path))
                log = stack.enter_context(_opened(disk, name.sibling_path(".log")))
                yield from map(Line, offset_index_lines(name, file, log, options, findings))
            case ".timeindex":
                file = stack.enter_context(_opened(disk, name.path))
                index = stack.enter_context(_opened(disk, name.sibling_path(".index")))
                log = stack.enter_context(_opened(disk, name.sibling_path(".log")))
                lines = time_index_lines(name, file, index, log, options, findings)
                yield from map(Line, lines)
            case ".txnindex":
                file = stack.enter_context(_opened(disk, name.path))
                yield from map(Line, transaction_index_lines(name, file))
            case ".snapshot":
                file = stack.enter_context(_opened(disk, name.path))
                yield from _snapshot_lines(file)
            case _:
                _check_there(disk, name)
                yield Line(f"Ignoring unknown file {name.text}", is_problem=True)


def _check_there(disk: ReadableDisk, name: DumpedFile) -> None:
    """Refuse what is not there, or is a folder: that is a mistake, not a file to be ignored."""
    try:
        disk.open(name.path).close()
    except IsADirectoryError as error:
        problem = f"{error.strerror}: name its files, {name.text}/{_FIRST_LOG} say"
        raise IsADirectoryError(error.errno, problem, name.text) from error


def _snapshot_lines(file: ReadableFile) -> Iterator[Line]:
    """A damaged snapshot is no failure: brokers live with that, and Kafka's tool exits with 0."""
    try:
        yield from map(Line, producer_snapshot_lines(file))
    except CorruptionError as error:
        yield Line(str(error), is_problem=True)


@contextmanager
def _opened(disk: ReadableDisk, path: PurePath) -> Iterator[ReadableFile]:
    file = disk.open(path)
    try:
        yield file
    finally:
        file.close()
