"""Spark's `kafka.*` options in librdkafka: translated and refused options, and no shown secrets."""

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

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


def test_a_plain_connection_has_only_its_servers():
    options = {
        **SERVERS,
        "kafka.max.poll.records": "5",
        "subscribe": "orders",
        "startingOffsets": "earliest",
        "kafka.ssl.key.password": SECRET,
    }
    assert librdkafka_options(options) == {**OURS, "security.protocol": "PLAINTEXT"}


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


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_scram_login_over_tls_with_a_pem_truststore(mechanism):
    jaas = (
        f'kafkashaded.{MODULES}.scram.ScramLoginModule required password="{SECRET}" '
        'username="alice";'
    )
    trust = {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": "/ca.pem"}
    assert librdkafka_options({**sasl(mechanism, jaas, "sasl_ssl"), **trust}) == {
        **OURS,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": SECRET,
        "ssl.ca.location": "/ca.pem",
    }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
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
def test_tls(options, expected):
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
        ArgumentError,
        match=r"no counterpart in librdkafka, which writes the dead letters: pass .*DeadLetter",
    ) as of_letters:
        check(options)
    for error in (raised.value, of_letters.value):
        assert text in str(error)
        assert SECRET not in str(error)


def test_translated_options_are_valid_in_librdkafka():
    jaas = f'{MODULES}.scram.ScramLoginModule required username="alice" password="{SECRET}";'
    translated = librdkafka_options(
        {
            **sasl("SCRAM-SHA-512", jaas, "SASL_SSL"),
            "kafka.ssl.endpoint.identification.algorithm": "",
        }
    )
    del translated["bootstrap.servers"]
    Producer({**translated, "log_level": 0})


# --------------------------------------------------------------------------------------------------
# where letters go


def check(options: dict[str, str], **letter_options: object) -> dict[str, object]:
    named = {name.replace("_", "."): value for name, value in letter_options.items()}
    return dict(destination_of(DeadLetter("dead", named), "debezium-json", options).config)


PLAIN = sasl("PLAIN", f'a.PlainLoginModule required username="alice" password="{SECRET}";')


def test_the_connection_is_sparks_and_options_are_added():
    config = check(PLAIN, linger_ms=50)
    assert config["sasl.password"] == SECRET
    assert (config["bootstrap.servers"], config["linger.ms"], config["acks"]) == (
        "one:9092,two:9092",
        50,
        "all",
    )
    assert config["enable.idempotence"] is True


def test_own_security_options_inherit_only_the_servers():
    mine = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "bob",
        "sasl_password": "other",
    }
    config = check({**PLAIN, "kafka.sasl.mechanism": "GSSAPI"}, **mine)
    assert config["bootstrap.servers"] == "one:9092,two:9092"
    assert config["sasl.password"] == "other"


def test_own_servers_inherit_nothing_so_that_no_secret_reaches_another_cluster():
    config = check(PLAIN, bootstrap_servers="other:9092")
    assert config["bootstrap.servers"] == "other:9092"
    assert not [name for name in config if name.startswith(("sasl.", "security."))]


def test_secrets_never_appear_in_a_repr():
    letters = destination_of(DeadLetter("dead"), "debezium-json", PLAIN)
    assert SECRET in str(dict(letters.config))
    assert SECRET not in repr(letters)


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


def test_known_options_pass_in_any_case(caplog: Any) -> None:
    check_option_names(
        {
            **READER_DEFAULTS,
            "STARTINGOFFSETS": "latest",
            "Kafka.Group.Id": "a",
            "kafka.bootstrap.servers": "a:1",
        }
    )
    check_option_names(
        {"includeHeaders": True, "checkpointLocation": "/c", "kafka.acks": "all"},
        supported=SINK_OPTIONS,
    )
    assert caplog.records == []


def test_unknown_options_pass(caplog: Any) -> None:
    caplog.set_level(logging.WARNING, "normalize")
    check_option_names(
        {
            "kafka.my.plugin.setting": "x",
            "kafka.ssl.fips.mode": "on",
            "databricks.serviceCredential": "c",
        }
    )
    assert [record.getMessage() for record in caplog.records] == [
        (
            "options has 'databricks.serviceCredential', which is not an option of Spark's Kafka "
            "source or sink: Spark ignores it"
        )
    ]


# --------------------------------------------------------------------------------------------------
# Invalid values of options of Spark's Kafka source are refused at the call
SERVERS_OF_OPTION_VALUES = {"kafka.bootstrap.servers": "a:1"}
COUNT = f"an integer from 1 to {2**63 - 1}"


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
    assert reader_options("orders", {**SERVERS_OF_OPTION_VALUES, **values}).items() >= read.items()
    assert reader_options("orders", {**SERVERS_OF_OPTION_VALUES, "startingOffsets": "Latest"})
    assert reader_options("orders", SERVERS_OF_OPTION_VALUES).items() >= READER_DEFAULTS.items()
    # Kafka's default of 500 ms is a wait of each task at the end of its partition.
    waits = {"kafka.fetch.max.wait.ms": "1"}
    assert reader_options("orders", SERVERS_OF_OPTION_VALUES).items() >= waits.items()
    own = {"kafka.fetch.max.wait.ms": 20}
    assert (
        reader_options("orders", {**SERVERS_OF_OPTION_VALUES, **own})["kafka.fetch.max.wait.ms"]
        == "20"
    )


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
    check_files(["spark://driver:7077/files/package.zip", "file:/tmp/job.py"])
    assert caplog.messages == []
    check_files(["spark://driver:7077/files/package-0.2.0-py3-none-any.whl"])
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("package-0.2.0-py3-none-any.whl is a wheel, from which")


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
                reader_options("orders", {**SERVERS_OF_OPTION_VALUES, option: value})
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
