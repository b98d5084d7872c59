"""Keeps compacted logs clean while the node runs.

Each log directory has a cleaner; every ``log.cleaner.backoff.ms`` it is asked which of its logs is
due. The cleaning itself runs in a process of its own, the swap of files here on the loop, and what
must wait for the disk on a thread.
"""

import asyncio
from concurrent.futures import Future
from contextlib import suppress

from odradek.core.clock import Clock
from odradek.core.config import BrokerConfig
from odradek.core.errors import ApiError
from odradek.core.ids import TopicPartition
from odradek.quorum.node_ports import Workers as NodeWorkers
from odradek.storage.checkpoint_file import disk_for_thread
from odradek.storage.cleaner.log_cleaner import LogCleaner
from odradek.storage.cleaner.task import CleanerSettings, CleaningResult
from odradek.storage.cleaner.worker import Workers
from odradek.storage.disk import Disk
from odradek.storage.log_directory import LogDirectory
from odradek.storage.log_store import LogStore


class Compaction:
    def __init__(
        self,
        store: LogStore,
        disk: Disk,
        config: BrokerConfig,
        clock: Clock,
        threads: NodeWorkers,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._threads = threads
        self._backoff_ms = config.log_cleaner_backoff_ms
        self._workers = Workers(config.integer("log.cleaner.threads"))
        self._timer: asyncio.TimerHandle | None = None
        self._cleaners: dict[LogDirectory, LogCleaner] = {}
        self._under_way: set[TopicPartition] = set()
        settings = CleanerSettings(
            config.log_cleaner_dedupe_buffer_size, config.log_cleaner_io_buffer_load_factor
        )
        for directory in store.directories:
            if directory.is_online:
                cleaner = LogCleaner(disk, directory.path, self._workers.submit, settings)
                cleaner.mend_checkpoint(stored.log for stored in directory.logs.values())
                directory.cleaner = self._cleaners[directory] = cleaner
        self._schedule()

    def stop(self) -> None:
        """Drop what is being cleaned; half-made files are removed at the next start."""
        if self._timer is not None:
            self._timer.cancel()
        self._workers.close()

    def on_clock_advanced(self) -> None:
        """Look now which logs are due; their cleaning is begun, and nobody waits for it."""
        if self._timer is not None:
            self._timer.cancel()
        self._tick()

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._backoff_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._schedule()
        for directory, cleaner in self._cleaners.items():
            if not directory.is_writable or self._under_way & directory.logs.keys():
                continue
            with suppress(ApiError), directory.guard:
                self._clean_next(directory, cleaner)

    def _clean_next(self, directory: LogDirectory, cleaner: LogCleaner) -> None:
        now_ms = self._clock.now_ms()
        logs = [stored.log for stored in directory.logs.values() if not stored.is_future]
        to_clean = cleaner.select(logs, now_ms)
        if to_clean is None:
            return
        partition = to_clean.log.partition
        loop = asyncio.get_running_loop()
        future = cleaner.start_cleaning(to_clean, now_ms)
        self._under_way.add(partition)

        def done(ended: "Future[CleaningResult]") -> None:
            if not ended.cancelled() and not loop.is_closed():
                loop.call_soon_threadsafe(self._on_cleaned, directory, cleaner, partition, ended)

        future.add_done_callback(done)

    def _on_cleaned(
        self,
        directory: LogDirectory,
        cleaner: LogCleaner,
        partition: TopicPartition,
        ended: "Future[CleaningResult]",
    ) -> None:
        self._under_way.discard(partition)
        plan = None
        with suppress(ApiError), directory.guard:  # of which the directory took note
            plan = cleaner.on_cleaned(partition, ended, self._clock.now_ms())
        if plan is not None:
            plan = plan._replace(disk=disk_for_thread(self._disk))

            def finished(error: BaseException | None) -> None:
                if isinstance(error, OSError):
                    directory.on_io_error(error)

            self._threads.run(plan.run, finished)
