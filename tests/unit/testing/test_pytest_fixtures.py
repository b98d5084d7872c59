"""The fixtures, in the test suites of others: pytest runs pytest.

In a process of its own: one inside this process would leave modules behind that are there twice.
"""

import pytest

pytest_plugins = ["pytester"]


def test_fixtures_share_a_broker_and_have_topics_of_their_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        seen = []

        def test_one(odradek_broker, odradek_topic):
            seen.append((odradek_broker, odradek_topic))

        def test_two(odradek_broker, odradek_topic):
            seen.append((odradek_broker, odradek_topic))
            (first, a), (second, b) = seen
            assert first is second
            assert a != b
            assert {a, b} <= set(odradek_broker.node.broker.image.topics)
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_a_test_can_have_brokers_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        started = []

        def test_own(odradek_broker_factory):
            one = odradek_broker_factory(topics=["t"], memory=True)
            two = odradek_broker_factory(memory=True)
            assert one.port != two.port
            started.extend([one, two])

        def test_they_are_stopped_with_the_test():
            for broker in started:
                assert broker._node is None
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_configs_come_from_the_ini_file(pytester: pytest.Pytester) -> None:
    pytester.makeini(
        """
        [pytest]
        odradek_config =
            num.partitions=3
            fetch.max.bytes = 5000
        """
    )
    pytester.makepyfile(
        """
        def test_session(odradek_broker):
            assert odradek_broker.node.config.num_partitions == 3

        def test_own(odradek_broker_factory):
            broker = odradek_broker_factory(memory=True, config={"num.partitions": "4"})
            assert broker.node.config.num_partitions == 4
            assert broker.node.config.fetch_max_bytes == 5000
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_a_line_that_is_no_config_is_pointed_out(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nodradek_config = num.partitions")
    pytester.makepyfile("def test_it(odradek_broker): pass")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*odradek_config: 'num.partitions' is not name=value*"])


def test_a_cluster_is_mended_between_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        seen = []

        def test_break(odradek_cluster):
            seen.append(odradek_cluster)
            odradek_cluster[1].kill()
            odradek_cluster[2].pause()
            odradek_cluster.cut(2, 3)

        def test_whole_again(odradek_cluster):
            assert odradek_cluster is seen[0]
            assert odradek_cluster.is_healthy

        def test_own(odradek_cluster_factory):
            own = odradek_cluster_factory(nodes=1, topics=["t"])
            assert own.leader("t").id == 1
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=3)
