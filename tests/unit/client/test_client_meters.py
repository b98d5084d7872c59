"""Meters over time: totals stay, rates and averages forget."""

from math import isnan

import pytest

from odradek.cli.metric_lines import metric_lines
from odradek.client.metrics import NODES_MAX, WINDOW_MS, Meter, MetricName, NetworkMetrics, Report


def test_a_meter_that_was_told_nothing_has_no_average() -> None:
    meter = Meter(0)
    assert (meter.total, meter.count, meter.rate(1000), meter.frequency(1000)) == (0, 0, 0, 0)
    assert isnan(meter.average(1000))
    assert isnan(meter.maximum(1000))
    assert meter.seconds_ago(1000) == -1


def test_rates_are_over_the_window_and_the_one_before() -> None:
    meter = Meter(0)
    for now_ms in (0, 10_000, 20_000):
        meter.record(30, now_ms)
    # A window that is not over counts as a whole one more, as in Kafka.
    assert meter.rate(20_000) == pytest.approx(90 / 50)
    assert meter.frequency(20_000) == pytest.approx(3 / 50)
    meter.record(60, 35_000)
    assert meter.rate(40_000) == pytest.approx(150 / 40)
    assert meter.average(40_000) == pytest.approx(150 / 4)
    assert meter.maximum(40_000) == 60
    assert meter.seconds_ago(40_000) == 5


def test_what_is_two_windows_old_is_forgotten_but_for_the_total() -> None:
    meter = Meter(0)
    meter.record(500, 1000)
    meter.record(3, WINDOW_MS + 1000)
    assert meter.maximum(WINDOW_MS + 2000) == 500
    assert meter.maximum(2 * WINDOW_MS) == 3
    assert meter.average(2 * WINDOW_MS) == 3
    assert isnan(meter.average(5 * WINDOW_MS))
    assert meter.rate(5 * WINDOW_MS) == 0
    assert (meter.total, meter.count) == (503, 2)
    idle = Meter(0)
    idle.record(500, 0)
    assert isnan(idle.maximum(2 * WINDOW_MS))


def test_maxima_may_be_negative_or_nothing() -> None:
    meter = Meter(0)
    meter.record(-5, 0)
    assert meter.maximum(0) == -5
    meter.record(0, 0)
    assert meter.maximum(0) == 0


def test_brokers_have_figures_of_their_own_up_to_a_limit() -> None:
    now_ms = 0.0
    network = NetworkMetrics(lambda: now_ms)
    for node_id in range(NODES_MAX + 5):
        network.connection(node_id).on_request(10, now_ms)
    now_ms = 7.0
    network.connection(3).on_response("Fetch", 100, sent_ms=2.0)
    report = Report("me", now_ms)
    network.collect("consumer", report)
    client = ("client-id", "me")
    assert report.values[MetricName("consumer-metrics", "request-total", (client,))] == 1005
    node = (client, ("node-id", "node-3"))
    group = "consumer-node-metrics"
    assert report.values[MetricName(group, "outgoing-byte-total", node)] == 10
    assert report.values[MetricName(group, "incoming-byte-total", node)] == 100
    assert report.values[MetricName(group, "request-latency-max", node)] == 5
    assert sum(each.name == "request-total" for each in report.values) == NODES_MAX + 1
    assert network.latency("Fetch").count == 1


def test_lines_are_those_of_kafkas_tools() -> None:
    client = ("client-id", "me")
    metrics = {
        MetricName("b-metrics", "x-max", (client, ("topic", "t"))): 1.5,
        MetricName("a-metrics", "x", (client,)): float("nan"),
    }
    assert list(metric_lines(metrics)) == [
        "",
        "Metric Name                               Value",
        "a-metrics:x:{client-id=me}              : NaN",
        "b-metrics:x-max:{client-id=me, topic=t} : 1.500",
    ]
