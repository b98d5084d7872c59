"""A fetch session: what is asked for, by a broker that remembers."""

from random import Random

from odradek.client.consumer.fetch_session import FetchSession, SessionRequest, Wanted
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition, Uuid

ONE, OTHER = Uuid(b"1" * 16), Uuid(b"2" * 16)
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def wanted(offset: int, topic_id: Uuid = ONE) -> Wanted:
    return Wanted(topic_id, offset, 0, 1000)


def test_only_what_changed_is_asked_for_again() -> None:
    session = FetchSession()
    first = session.plan({A: wanted(0), B: wanted(0)})
    assert first == SessionRequest(0, 0, {A: wanted(0), B: wanted(0)}, {})
    session.on_answer(0, 77)
    second = session.plan({A: wanted(5), B: wanted(0)})
    assert second == SessionRequest(77, 1, {A: wanted(5)}, {})
    session.on_answer(0, 77)
    assert session.plan({B: wanted(0)}) == SessionRequest(77, 2, {}, {A: ONE})
    session.on_answer(0, 77)
    assert session.plan({A: wanted(5), B: wanted(0)}).send == {A: wanted(5)}


def test_a_topic_made_anew_is_forgotten_under_its_old_id() -> None:
    session = FetchSession()
    session.plan({A: wanted(5)})
    session.on_answer(0, 77)
    again = session.plan({A: wanted(0, OTHER)})
    assert again == SessionRequest(77, 1, {A: wanted(0, OTHER)}, {A: ONE})


def test_a_lost_session_begins_anew_with_everything() -> None:
    for code, session_id in (
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 77),
    ):
        session = FetchSession()
        session.plan({A: wanted(0)})
        session.on_answer(0, 77)
        session.plan({A: wanted(1)})
        session.on_answer(code, 0)
        assert session.plan({A: wanted(1)}) == SessionRequest(session_id, 0, {A: wanted(1)}, {})


def test_a_broker_without_room_is_asked_for_everything_each_time() -> None:
    session = FetchSession()
    for _ in range(3):
        assert session.plan({A: wanted(0)}) == SessionRequest(0, 0, {A: wanted(0)}, {})
        session.on_answer(0, 0)


def test_the_broker_always_looks_at_what_is_wanted() -> None:
    """A dumb broker that keeps a session has, after each request, exactly what is wanted."""
    random = Random(1)
    session, remembered = FetchSession(), dict[TopicPartition, Wanted]()
    partitions = [TopicPartition("t", n) for n in range(5)]
    for _ in range(500):
        want = {
            each: wanted(random.randrange(3), random.choice([ONE, OTHER]))
            for each in partitions
            if random.random() < 0.6
        }
        request = session.plan(want)
        if request.epoch == 0:
            remembered = {}
        for partition, topic_id in request.forget.items():
            assert remembered[partition].topic_id == topic_id
            del remembered[partition]
        remembered.update(request.send)
        assert remembered == want
        code = ErrorCode.INVALID_FETCH_SESSION_EPOCH if random.random() < 0.1 else 0
        session.on_answer(code, 5)
