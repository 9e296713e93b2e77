"""Kafka's descriptions of topics, without a broker."""

from normalize.kafka.topics import TopicMonitor


def test_brokers_that_do_not_answer_take_a_part_of_the_time() -> None:
    times = iter([0.0, 2.0, 41.9, 42.0, 42.1])
    monitor = TopicMonitor(
        {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}, clock=lambda: next(times)
    )
    assert monitor() == {}
    assert "[KAFKA_UNAVAILABLE]" in monitor.problem
    monitor.problem = ""
    assert monitor() == {}
    assert monitor.problem == ""
    assert monitor() == {}
    assert "[KAFKA_UNAVAILABLE]" in monitor.problem
