"""Mistakes a broker could make in its life, to be planted and to be noticed."""

from collections.abc import Callable

import pytest

from odradek.broker import lifecycle
from odradek.broker.lifecycle import BrokerLifecycle
from odradek.broker.lifecycle_events import BrokerState, MayStop, Unfenced
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)

Plant = Callable[[pytest.MonkeyPatch], None]


def want_no_fence_from_the_beginning(patch: pytest.MonkeyPatch) -> None:
    """Unfenced before its logs are loaded."""
    beat = BrokerLifecycle._heartbeat

    def eager(self: BrokerLifecycle) -> BrokerHeartbeatRequest:
        request = beat(self)
        request.want_fence = False
        return request

    patch.setattr(BrokerLifecycle, "_heartbeat", eager)


def serve_when_caught_up(patch: pytest.MonkeyPatch) -> None:
    """Clients are served when the broker has caught up, fenced or not."""

    def note(
        self: BrokerLifecycle,
        _request: BrokerHeartbeatRequest,
        response: BrokerHeartbeatResponse,
        _why: str,
    ) -> None:
        self.is_fenced = response.is_fenced
        if self.state is BrokerState.RECOVERY and response.is_caught_up and self._is_ready:
            self.state = BrokerState.RUNNING
            self._events.append(Unfenced(again=False))

    patch.setattr(BrokerLifecycle, "_note_fencing", note)


def claim_a_later_offset(patch: pytest.MonkeyPatch) -> None:
    """Reports what it has fetched, or hopes to, and not what it has applied."""
    beat = BrokerLifecycle._heartbeat

    def hopeful(self: BrokerLifecycle) -> BrokerHeartbeatRequest:
        request = beat(self)
        request.current_metadata_offset += 1_000
        return request

    patch.setattr(BrokerLifecycle, "_heartbeat", hopeful)
    patch.setattr(BrokerLifecycle, "_is_behind", False)


def leave_with_any_answer(patch: pytest.MonkeyPatch) -> None:
    def leave(
        self: BrokerLifecycle,
        _request: BrokerHeartbeatRequest,
        _response: BrokerHeartbeatResponse,
        _now_ms: int,
    ) -> None:
        self._end(MayStop(granted=True, why="planted"))

    patch.setattr(BrokerLifecycle, "_on_shutdown_answer", leave)


def go_on_with_a_stale_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lifecycle, "_NOT_OURS", {})


def give_up_for_any_error(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lifecycle, "_NOT_OURS", dict.fromkeys(ErrorCode, "planted"))
    patch.setattr(
        BrokerLifecycle,
        "on_failure",
        lambda self, error, now_ms: self._on_refused(BrokerHeartbeatRequest(), error.code, now_ms),
    )


def forget_to_heartbeat_after_a_failure(patch: pytest.MonkeyPatch) -> None:
    def wait_for_ever(self: BrokerLifecycle, now_ms: int) -> None:
        self._next_ms = now_ms + 10**9

    patch.setattr(BrokerLifecycle, "_retry", wait_for_ever)


def ask_without_a_pause(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        BrokerLifecycle, "_schedule", lambda self, now_ms, _ms: self._send_at_once(now_ms)
    )
