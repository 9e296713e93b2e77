"""Spark's `kafka.*` options in librdkafka: translated and refused options, and no shown secrets."""

import sys
from pathlib import Path
from typing import Any

import pytest

from cdc_formats.errors import ArgumentError, MissingDependencyError
from normalize import local_session
from normalize.kafka.client_options import librdkafka_options
from normalize.kafka.dead_letter import DeadLetter, destination_of
from normalize.kafka.reader_options import (
    READER_DEFAULTS,
    SINK_OPTIONS,
    check_option_names,
    reader_options,
)
from normalize.local_kafka import LocalKafka, LocalKafkaError, ProducerRecord
from normalize.spark.files import local_checkpoint_settings
from normalize.spark_versions import check_files, worker_problem
from tests.support.error_texts import error_test

SERVERS = {"kafka.bootstrap.servers": "one:9092,two:9092"}
OURS = {"bootstrap.servers": "one:9092,two:9092"}
MODULES = "org.apache.kafka.common.security"
SECRET = "s3cret"


def sasl(mechanism: str, jaas: str, protocol: str = "SASL_PLAINTEXT") -> dict[str, str]:
    return {
        **SERVERS,
        "kafka.security.protocol": protocol,
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": jaas,
    }


def ssl(**options: str) -> dict[str, str]:
    named = {f"kafka.ssl.{name.replace('_', '.')}": value for name, value in options.items()}
    return {**SERVERS, "kafka.security.protocol": "SSL", **named}


@pytest.mark.parametrize(
    ("written", "password"),
    [
        pytest.param(f'"{SECRET}"', SECRET, id="double quotes"),
        pytest.param(f"'{SECRET}'", SECRET, id="single quotes"),
        pytest.param(SECRET, SECRET, id="a bare word"),
        pytest.param(r'"a\"b\\c;d = \'e"', "a\"b\\c;d = 'e", id="escapes"),
        pytest.param('""', "", id="empty"),
    ],
)
def test_a_plain_login_is_its_user_and_password(written, password):
    jaas = f'{MODULES}.plain.PlainLoginModule required\n username="alice"  password = {written} ;'
    expected = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": password,
    }
    assert librdkafka_options(sasl("PLAIN", jaas)) == {**OURS, **expected}


SCRAM = (
    f'kafkashaded.{MODULES}.scram.ScramLoginModule required password="{SECRET}" username="alice";'
)
PEM = {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": "/ca.pem"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(
            {
                **SERVERS,
                "kafka.max.poll.records": "5",
                "subscribe": "orders",
                "startingOffsets": "earliest",
                "kafka.ssl.key.password": SECRET,
            },
            {"security.protocol": "PLAINTEXT"},
            id="a plain connection",
        ),
        *(
            pytest.param(
                {**sasl(mechanism, SCRAM, "sasl_ssl"), **PEM},
                {
                    "security.protocol": "SASL_SSL",
                    "sasl.mechanism": mechanism,
                    "sasl.username": "alice",
                    "sasl.password": SECRET,
                    "ssl.ca.location": "/ca.pem",
                },
                id=f"{mechanism} over TLS with a PEM truststore",
            )
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        ),
        pytest.param(ssl(), {}, id="the system's authorities"),
        pytest.param(
            ssl(truststore_type="pem", truststore_certificates="CA"),
            {"ssl.ca.pem": "CA"},
            id="authorities in the option",
        ),
        pytest.param(
            ssl(keystore_type="PEM", keystore_location="/me.pem", key_password=SECRET),
            {
                "ssl.certificate.location": "/me.pem",
                "ssl.key.location": "/me.pem",
                "ssl.key.password": SECRET,
            },
            id="a PEM file with key and certificates",
        ),
        pytest.param(
            ssl(keystore_type="PEM", keystore_key=SECRET, keystore_certificate_chain="CHAIN"),
            {"ssl.key.pem": SECRET, "ssl.certificate.pem": "CHAIN"},
            id="key and certificates in the options",
        ),
        pytest.param(
            ssl(keystore_type="PKCS12", keystore_location="/me.p12", keystore_password=SECRET),
            {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": SECRET},
            id="a PKCS12 keystore",
        ),
        pytest.param(
            ssl(endpoint_identification_algorithm=""),
            {"ssl.endpoint.identification.algorithm": "none"},
            id="host names not verified",
        ),
    ],
)
def test_options_are_those_of_librdkafka(options, expected):
    assert librdkafka_options(options) == {**OURS, "security.protocol": "SSL", **expected}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param(
            {**SERVERS, "kafka.security.protocol": "SASL_PLAINTEXT"},
            "default mechanism GSSAPI",
            id="Kerberos by default",
        ),
        pytest.param(sasl("GSSAPI", "x"), "kafka.sasl.mechanism=GSSAPI", id="Kerberos"),
        pytest.param(sasl("OAUTHBEARER", "x"), "kafka.sasl.mechanism=OAUTHBEARER", id="OAuth"),
        pytest.param(
            sasl("PLAIN", f'a.ScramLoginModule required username="a" password="{SECRET}";'),
            "the single PlainLoginModule",
            id="another module",
        ),
        pytest.param(
            sasl("PLAIN", f'a.PlainLoginModule required username="a" password="{SECRET}"'),
            "the single PlainLoginModule",
            id="no semicolon",
        ),
        pytest.param(
            sasl(
                "SCRAM-SHA-256",
                f'a.ScramLoginModule required username="a" password="{SECRET}" tokenauth="true";',
            ),
            "password, tokenauth, username",
            id="a delegation token",
        ),
        pytest.param(
            sasl("PLAIN", f'a.PlainLoginModule required username="a" password="{SECRET}\\n";'),
            "escape of a control character",
            id="escape",
        ),
        pytest.param(
            {**sasl("PLAIN", "x"), "kafka.sasl.client.callback.handler.class": SECRET},
            "kafka.sasl.client.callback.handler.class",
            id="handler",
        ),
        pytest.param(
            ssl(truststore_location="/ca.jks", truststore_password=SECRET),
            "truststore.location of type JKS",
            id="JKS by default",
        ),
        pytest.param(
            ssl(truststore_type="PKCS12", truststore_location="/ca.p12"),
            "of type PKCS12",
            id="PKCS12 truststore",
        ),
        pytest.param(
            ssl(enabled_protocols="TLSv1.3"),
            "kafka.ssl.enabled.protocols",
            id="another option of TLS",
        ),
    ],
)
def test_untranslatable_options_are_refused_with_a_solution_and_without_secrets(options, text):
    with pytest.raises(ArgumentError, match=r"no counterpart in librdkafka$") as raised:
        librdkafka_options(options)
    with pytest.raises(
        ArgumentError, match=r"which writes the dead letters: pass .*Dead"
    ) as of_letters:
        check(options)
    for shown in map(str, (raised.value, of_letters.value)):
        assert (text in shown, SECRET in shown) == (True, False)


def test_translated_options_are_valid_in_librdkafka():
    options = sasl("SCRAM-SHA-512", SCRAM, "SASL_SSL")
    check({**options, "kafka.ssl.endpoint.identification.algorithm": ""})


# --------------------------------------------------------------------------------------------------
# where letters go


def check(options: dict[str, str], **letter_options: object) -> dict[str, object]:
    named = {name.replace("_", "."): value for name, value in letter_options.items()}
    return dict(destination_of(DeadLetter("dead", named), "debezium-json", options).config)


PLAIN = sasl("PLAIN", f'a.PlainLoginModule required username="alice" password="{SECRET}";')


@pytest.mark.parametrize(
    ("mechanism", "own", "expected"),
    [
        pytest.param(
            "PLAIN",
            {"linger_ms": 50},
            {"sasl.password": SECRET, "linger.ms": 50, "acks": "all", "enable.idempotence": True},
            id="the connection is Spark's, and options are added",
        ),
        pytest.param(
            "GSSAPI",
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "PLAIN",
                "sasl_username": "bob",
                "sasl_password": "other",
            },
            {"sasl.password": "other"},
            id="own security options inherit only the servers",
        ),
    ],
)
def test_the_connection_of_the_letters(mechanism, own, expected):
    config = check({**PLAIN, "kafka.sasl.mechanism": mechanism}, **own)
    assert config.items() >= {**OURS, **expected}.items()


def test_own_servers_inherit_nothing_so_that_no_secret_reaches_another_cluster():
    config = check(PLAIN, bootstrap_servers="other:9092")
    secrets = [name for name in config if name.startswith(("sasl.", "security."))]
    assert (config["bootstrap.servers"], secrets) == ("other:9092", [])


@pytest.mark.parametrize(
    ("topic", "producer_options", "text"),
    [
        pytest.param("", {}, "the name of a Kafka topic", id="empty topic"),
        pytest.param("a b", {}, "the name of a Kafka topic", id="an invalid topic name"),
        pytest.param("dead", {"acks": 1}, "other acks than 'all'", id="acks"),
        pytest.param(
            "dead",
            {"request.required.acks": "0"},
            "other acks than 'all'",
            id="acks by its other name",
        ),
        pytest.param(
            "dead",
            {"linger.sm": 1},
            'No such configuration property: "linger.sm"',
            id="unknown option",
        ),
        pytest.param(
            "dead", {"compression.type": "zip"}, 'Invalid value "zip"', id="unknown value"
        ),
        pytest.param(
            "dead",
            {"security.protocol": "SSL", "ssl.key.pem": SECRET},
            "ssl.key.pem failed",
            id="an invalid private key",
        ),
    ],
)
def test_options_that_make_no_producer_are_refused(topic, producer_options, text):
    with pytest.raises(ArgumentError, match=text) as raised:
        destination_of(DeadLetter(topic, producer_options), "debezium-json", SERVERS)
    assert SECRET not in str(raised.value)


# --------------------------------------------------------------------------------------------------
# Misspelt options of Spark's Kafka source and of Kafka are refused; unknown ones pass


@pytest.mark.parametrize(
    ("options", "supported", "warnings"),
    [
        (
            {
                **READER_DEFAULTS,
                "STARTINGOFFSETS": "latest",
                "Kafka.Group.Id": "a",
                "kafka.bootstrap.servers": "a:1",
            },
            {},
            [],
        ),
        (
            {"includeHeaders": True, "checkpointLocation": "/c", "kafka.acks": "all"},
            {"supported": SINK_OPTIONS},
            [],
        ),
        (
            {
                "kafka.my.plugin.setting": "x",
                "kafka.ssl.fips.mode": "on",
                "databricks.serviceCredential": "c",
            },
            {},
            [
                "options has 'databricks.serviceCredential', which is not an option of Spark's "
                "Kafka source or sink: Spark ignores it"
            ],
        ),
    ],
)
def test_known_options_in_any_case_and_unknown_ones_pass(
    caplog: Any, options: dict[str, Any], supported: dict[str, Any], warnings: list[str]
) -> None:
    check_option_names(options, **supported)
    assert caplog.messages == warnings


# --------------------------------------------------------------------------------------------------
# Invalid values of options of Spark's Kafka source are refused at the call


def test_values_that_spark_reads_pass() -> None:
    values = {
        "startingOffsets": '{"orders": {"0": 23, "1": -2}, "items": {"0": -1}}',
        "maxOffsetsPerTrigger": "+100",
        "minPartitions": 7,
        "failOnDataLoss": False,
        "maxTriggerDelay": "15M",
        "startingOffsetsByTimestampStrategy": "Latest",
        "kafka.max.poll.records": "none of Spark's",
    }
    read = {name: str(value) for name, value in values.items()}
    # Kafka's default of 500 ms is a wait of each task at the end of its partition.
    waits = {**READER_DEFAULTS, "kafka.fetch.max.wait.ms": "1"}
    for passed, least in (
        (values, read),
        ({}, waits),
        ({"startingOffsets": "Latest"}, {}),
        ({"kafka.fetch.max.wait.ms": 20}, {"kafka.fetch.max.wait.ms": "20"}),
    ):
        assert reader_options("orders", {**SERVERS, **passed}).items() >= least.items()


# --------------------------------------------------------------------------------------------------
# Settings of a session that are checked without starting Spark


@pytest.mark.parametrize("name", ["pandas", "pyarrow"])
def test_a_missing_package_of_spark_is_named_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingDependencyError, match=f"requires {name} on Spark: pip install"):
        local_session()


def test_a_wheel_among_the_files_of_a_session_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wheel = "spark://driver:7077/files/package-0.2.0-py3-none-any.whl"
    check_files(["spark://driver:7077/files/package.zip", "file:/tmp/job.py"])
    check_files([wheel])
    (text,) = caplog.messages
    assert text.startswith("package-0.2.0-py3-none-any.whl is a wheel, from which")


def test_an_interpreter_for_workers_that_cannot_run_this_package_is_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert worker_problem(sys.executable, "") == ""
    assert (
        worker_problem("/nowhere/python", "")
        == "Spark's workers would run '/nowhere/python', which does not exist."
    )
    base = Path(sys.executable).resolve()
    if base == Path(sys.executable):
        pytest.skip("this is no virtual environment")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir("/")
    assert (
        f"Spark's workers run {base}, which cannot import this package (ModuleNotFoundError"
        in worker_problem(str(base), "")
    )


HDFS = {"spark.hadoop.fs.defaultFS": "hdfs://lake:8020"}


@pytest.mark.parametrize(
    ("location", "settings", "is_local"),
    [
        ("/data/checkpoint", {}, True),
        ("file:///data/checkpoint", HDFS, True),
        ("/data/checkpoint", HDFS, False),
        ("s3a://lake/checkpoint", {}, False),
        ("dbfs:/checkpoint", {}, False),
    ],
)
def test_only_a_local_checkpoint_is_written_without_processes(
    monkeypatch: pytest.MonkeyPatch, location: str, settings: dict[str, str], is_local: bool
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    assert bool(local_checkpoint_settings(location, settings)) == is_local
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert bool(local_checkpoint_settings(location, {})) == location.startswith("file:")


# --------------------------------------------------------------------------------------------------
# Arguments of `LocalKafka` and `ProducerRecord`, before a broker starts


def test_stop_before_start_does_nothing():
    kafka = LocalKafka()
    kafka.stop()
    with pytest.raises(LocalKafkaError, match="Kafka does not run"):
        _ = kafka.bootstrap_servers


test_error_texts = error_test(
    __file__,
    {
        **{
            f"a misspelt option is refused, {number}": lambda written=written: check_option_names(
                {written: "x"}
            )
            for number, written in enumerate(
                [
                    "startingOffset",
                    "starting_offsets",
                    "maxOffsetPerTrigger",
                    "failOnDataloss ",
                    "kafka.bootstrap.server",
                    "kafka.bootstrap_servers",
                    "bootstrap.servers",
                    "kafka.sasl.mechanisms",
                    "kafka.ssl.trustore.location",
                ],
                1,
            )
        },
        **{
            f"an invalid value is refused, {number}": lambda option=option, value=value: (
                reader_options("orders", {**SERVERS, option: value})
            )
            for number, (option, value) in enumerate(
                [
                    ("maxOffsetsPerTrigger", -1),
                    ("maxOffsetsPerTrigger", 0),
                    ("MAXOFFSETSPERTRIGGER", 10**30),
                    ("maxOffsetsPerTrigger", 1e6),
                    ("minPartitions", "many"),
                    ("startingOffsets", "soon"),
                    ("startingOffsets", '{"orders": 5}'),
                    ("startingOffsets", '{"orders": {"a": 5}}'),
                    ("startingOffsets", '{"orders": {"0": -3}}'),
                    ("endingOffsets", "earliest"),
                    ("startingOffsetsByTimestamp", "latest"),
                    ("startingOffsetsByTimestampStrategy", "earliest"),
                    ("failOnDataLoss", "no"),
                    ("maxTriggerDelay", "soon"),
                ],
                1,
            )
        },
        "an unknown package is refused": lambda: local_session(packages=["hudi"]),
        "a local broker reports its own listener": lambda: LocalKafka(
            properties={"listeners": "SSL://0.0.0.0:9093"}
        ),
        "record with timestamp zero is refused": lambda: ProducerRecord(b"k", b"v", timestamp=0),
    },
)
