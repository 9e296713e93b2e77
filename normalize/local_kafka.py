"""A real single-node Kafka for the demo, notebooks and tests.

::

    with LocalKafka() as kafka:
        kafka.create_topic("orders", partitions=3)
        kafka.produce("orders", [("101", b'{"id": 101}'), ("101", None)])
        spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)

or, from a terminal, ``python -m normalize.local_kafka --port 9092``.

In addition to its open listener a broker can have others, like a production cluster::

    LocalKafka(listeners={"LOGIN": "SASL_SSL"}, properties={"listener.name.login.sasl.enabled.mechanisms": "PLAIN", ...})

The broker is Apache Kafka. PySpark's Ivy jar resolves its jars once (a minute, about 45 MB, kept in
the user's cache folder); afterwards a broker starts in a few seconds.

A broker never outlives the process that started it::

    your process ──pipe──► guard ──► java kafka.Kafka

The guard is this file run as a script. It waits for the pipe to close, which the operating system
does even after SIGKILL. It then stops the broker and removes its temporary data. PR_SET_PDEATHSIG
would need no guard, but it exists only on Linux, and fires when the *thread* that started the
broker ends, as threads of notebooks and test runners do.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import gzip
import importlib.util
import json
import os
import platform
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from xml.sax.saxutils import quoteattr

if TYPE_CHECKING:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient

__all__ = ["KAFKA_VERSION", "LocalKafka", "LocalKafkaError", "ProducerRecord", "broker_jars"]

KAFKA_VERSION = "4.4.0"
MAX_MESSAGE_BYTES = 20 * 1024 * 1024
START_TIMEOUT = 120.0  # seconds; an idle machine needs three

# slf4j-simple: without a binding Kafka logs nothing, not even fatal errors.
IVY_MODULE = f"""\
<ivy-module version="2.0">
  <info organisation="local" module="kafka"/>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{KAFKA_VERSION}" conf="default"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="1.7.36" conf="default"/>
  </dependencies>
</ivy-module>
"""

# Maven Central unless a root is given.
IVY_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" {root}/></resolvers>
</ivysettings>
"""

# Recordings keep any timestamps, old or in the future, and never expire. One replica of everything.
SERVER_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}{listeners}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
log.message.timestamp.type=CreateTime
log.message.timestamp.after.max.ms=9223372036854775807
log.retention.ms=-1
log.retention.bytes=-1
message.max.bytes={max_message_bytes}
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=2
background.threads=2
"""


OWN_PROPERTIES = frozenset(
    {
        "process.roles",
        "node.id",
        "listeners",
        "listener.security.protocol.map",
        "controller.quorum.voters",
        "log.dirs",
    }
)
"""The broker settings that `LocalKafka` sets itself."""


class LocalKafkaError(RuntimeError):
    """The local broker cannot be fetched, started or used; the text says what to do."""


@dataclass(frozen=True)
class ProducerRecord:
    """One Kafka record to produce.

    Parameters
    ----------
    key, value : bytes, str or None
        Text is encoded as UTF-8. A value of None is a tombstone.
    partition : int, optional
        Default: chosen by the key's hash, as Java's producer does.
    timestamp : int, optional
        Milliseconds since 1970-01-01 UTC, greater than 0. Default: now.
    headers : tuple of (str, bytes or None)
    """

    key: bytes | str | None
    value: bytes | str | None
    partition: int | None = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def __post_init__(self) -> None:
        # For the client 0 means "not given": it would write the current time.
        if self.timestamp is not None and self.timestamp <= 0:
            raise ValueError(f"timestamp must be greater than 0, got {self.timestamp}")


KeyValue: TypeAlias = tuple[bytes | str | None, bytes | str | None]


class LocalKafka:
    """A single-node Kafka on 127.0.0.1, until the end of the ``with`` block or `stop`.

    Java gets the options in the environment variable ``KAFKA_JVM_PERFORMANCE_OPTS``, as in Kafka's
    scripts (default: the serial collector).

    Parameters
    ----------
    port : int, optional
        Port of the broker. Default: a free one, chosen by the operating system.
    data_dir : path, optional
        The folder that keeps the topics and the broker's log between runs. Default: a temporary
        folder, which `stop` removes.
    listeners : mapping, optional
        Additional listeners, each on a free port of 127.0.0.1: a name, in capitals, and its
        security protocol (``SSL``, ``SASL_SSL``, ``SASL_PLAINTEXT``). `listener` returns their
        addresses. This object uses the open one.
    properties : mapping, optional
        Kafka's broker settings, which override the defaults; listeners require
        ``listener.name.<name in lower case>.*``. They are written to a file that only the current
        user may read.

    Raises
    ------
    ValueError
        When `properties` has one of `OWN_PROPERTIES`.
    LocalKafkaError
        By `start`: confluent-kafka, Java or PySpark is missing, the jars cannot be fetched, `port`
        is taken, or the broker ended at start (with the end of its log).
    """

    def __init__(
        self,
        port: int | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        listeners: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        if own := OWN_PROPERTIES & set(properties or ()):
            raise ValueError(
                f"properties has {', '.join(sorted(own))}, which LocalKafka sets itself: pass "
                "listeners in `listeners`"
            )
        self._wanted_port = port
        self._protocols, self._properties = dict(listeners or {}), dict(properties or {})
        self._ports: dict[str, int] = {}
        self._data_dir = Path(data_dir).absolute() if data_dir is not None else None
        self._guard: subprocess.Popen[bytes] | None = None
        self._admin: AdminClient | None = None
        self._home: Path | None = None
        self._port = 0

    def __enter__(self) -> LocalKafka:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """Return "127.0.0.1:PORT", the value of Spark's option ``kafka.bootstrap.servers``."""
        self._require_started()
        return f"127.0.0.1:{self._port}"

    def listener(self, name: str) -> str:
        """Return "127.0.0.1:PORT" of a requested listener."""
        self._require_started()
        return f"127.0.0.1:{self._ports[name]}"

    def start(self) -> LocalKafka:
        """Start the broker and return when it answers; does nothing if it already runs."""
        if self._guard is not None:
            return self
        if importlib.util.find_spec("confluent_kafka") is None:
            raise LocalKafkaError(
                'confluent-kafka is missing: pip install "pyspark-kafka-changelog[kafka]"'
            )
        java, jars = find_java(), broker_jars()
        try:
            self._launch(java, jars)
        except _PortTakenError:
            # Another program took the free port before the broker bound it: choose again.
            self._launch(java, jars)
        return self

    def stop(self) -> None:
        """Stop the broker and remove its temporary data; does nothing if it does not run."""
        self._admin = None
        if self._guard is not None:
            assert self._guard.stdin is not None
            self._guard.stdin.close()
            # A forked child of this process may hold the pipe open, so that closing it is not
            # sufficient.
            self._guard.terminate()
            self._guard.wait()
            self._guard = None
        if self._home is not None and self._data_dir is None:
            shutil.rmtree(self._home, ignore_errors=True)
        self._home = None

    def wait(self) -> int:
        """Block until the broker ends by itself and return its exit code."""
        return self._require_started().wait()

    def create_topic(
        self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and return when readers and writers can see it.

        Parameters
        ----------
        topic : str
        partitions : int
        config : mapping, optional
            Kafka's topic settings, such as ``{"cleanup.policy": "compact"}``.

        Raises
        ------
        LocalKafkaError
            The topic already exists, or Kafka rejects its name or settings.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic

        self._require_started()
        assert self._admin is not None
        new_topic = NewTopic(
            topic, num_partitions=partitions, replication_factor=1, config=dict(config or {})
        )
        try:
            self._admin.create_topics([new_topic])[topic].result(timeout=30)
        except KafkaException as error:
            raise LocalKafkaError(
                f"cannot create topic {topic!r}: {error.args[0].str()}"
            ) from error
        # Kafka answers before every partition has a leader; a reader that starts too early would
        # fail.
        _poll_until(
            lambda: self._partitions_with_leader(topic) == partitions,
            f"topic {topic!r} has no leader",
        )

    def produce(self, topic: str, records: Iterable[ProducerRecord | KeyValue]) -> int:
        """Write records, in order within each partition; return their number when all are written.

        Parameters
        ----------
        topic : str
            An existing topic.
        records : iterable of ProducerRecord or (key, value)

        Raises
        ------
        LocalKafkaError
            Kafka rejected a record: unknown topic or partition, or too large.
        """
        from confluent_kafka import KafkaError, KafkaException, Producer

        self._require_started()
        failures: list[str] = []

        def on_delivery(error: KafkaError | None, message: object) -> None:
            if error is not None:
                failures.append(error.str())

        producer = Producer({**PRODUCER_OPTIONS, "bootstrap.servers": self.bootstrap_servers})
        count = 0
        try:
            # The client must know the partitions before the first record: it would append records
            # that it kept until then after later ones.
            producer.list_topics(topic, timeout=60)
            for record in records:
                _send(
                    producer,
                    topic,
                    record if isinstance(record, ProducerRecord) else ProducerRecord(*record),
                    on_delivery,
                )
                count += 1
        except KafkaException as error:
            failures.append(error.args[0].str())
        producer.flush()
        if failures:
            raise LocalKafkaError(
                f"cannot write {len(failures)} record(s) to {topic!r}: {failures[0]}"
            )
        return count

    def load_recording(self, path: str | os.PathLike[str], topic: str | None = None) -> int:
        """Write a recorded topic again: the same bytes, partitions, order, timestamps and headers.

        Parameters
        ----------
        path : path
            ``*.jsonl`` or ``*.jsonl.gz``, one record per line: topic, partition, timestamp
            (milliseconds since 1970-01-01 UTC), key_base64, value_base64 (null is a tombstone),
            headers ``[[name, base64], ...]``.
        topic : str, optional
            Default: the recording's own topic, or topics. Created, with enough partitions, if it
            does not exist.

        Returns
        -------
        int
            Number of records.

        Raises
        ------
        LocalKafkaError
            The topic exists with too few partitions, or `topic` is given for a recording of
            several.
        """
        recorded: dict[str, list[ProducerRecord]] = {}
        for name, record in _read_recording(Path(path)):
            recorded.setdefault(name, []).append(record)
        if topic is not None:
            if len(recorded) > 1:
                raise LocalKafkaError(
                    f"{path} holds several topics ({', '.join(sorted(recorded))}), not only one"
                )
            recorded = dict(
                zip([topic], recorded.values(), strict=False)
            )  # an empty recording has no topic
        for name, records in recorded.items():
            self._require_partitions(name, 1 + max(record.partition or 0 for record in records))
        return sum(self.produce(name, records) for name, records in recorded.items())

    def _launch(self, java: str, jars: Path) -> None:
        """Start a broker in its folder; leave nothing behind if it does not come up."""
        try:
            self._home = self._data_dir or Path(tempfile.mkdtemp(prefix="local-kafka-"))
            self._home.mkdir(parents=True, exist_ok=True)
            self._port = _free_port(self._wanted_port)
            cluster_id = self._configure(java, jars, self._home)
            self._guard = self._start_guard(
                [*_java_command(java, jars, "512m"), "kafka.Kafka"], self._home
            )
            self._wait_until_ready(cluster_id, self._home / "broker.log")
        except BaseException:
            self.stop()
            raise

    def _configure(self, java: str, jars: Path, home: Path) -> str:
        """Write server.properties, format the data folder if it is new; return the cluster id."""
        data, properties = home / "data", home / "server.properties"
        controller_port, *listener_ports = _other_ports(self._port, 1 + len(self._protocols))
        self._ports = dict(zip(self._protocols, listener_ports, strict=True))
        text = SERVER_PROPERTIES.format(
            port=self._port,
            controller_port=controller_port,
            data=data,
            max_message_bytes=MAX_MESSAGE_BYTES,
            listeners="".join(f",{name}://127.0.0.1:{port}" for name, port in self._ports.items()),
            protocols="".join(f",{name}:{protocol}" for name, protocol in self._protocols.items()),
        )
        properties.touch(mode=0o600)
        # Java's escapes, of which JSON's are a part.
        properties.write_text(
            text
            + "".join(
                f"{name}={json.dumps(value)[1:-1]}\n" for name, value in self._properties.items()
            )
        )
        return _cluster_id(data) or _format_storage(_java_command(java, jars, "128m"), properties)

    def _start_guard(self, command: list[str], home: Path) -> subprocess.Popen[bytes]:
        scratch = str(home) if self._data_dir is None else ""
        with (home / "broker.log").open("wb") as log:
            return subprocess.Popen(
                # -I: this file's folder must not come before the standard library.
                [
                    sys.executable,
                    "-I",
                    __file__,
                    "--guard",
                    scratch,
                    *command,
                    str(home / "server.properties"),
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C in a terminal or notebook must not reach the broker
                start_new_session=True,
            )

    def _wait_until_ready(self, cluster_id: str, log: Path) -> None:
        from confluent_kafka.admin import AdminClient

        _poll_until(lambda: self._has_ended() or _accepts(self._port), "Kafka does not listen", log)
        # Created only now: earlier it would log on stderr that the connection is refused.
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        _poll_until(
            lambda: self._has_ended() or self._answers(cluster_id), "Kafka does not answer", log
        )
        if self._has_ended():
            end = _end_of(log)
            kind = _PortTakenError if "Address already in use" in end else LocalKafkaError
            raise kind(f"Kafka ended at start; the end of its log:\n{end}")

    def _has_ended(self) -> bool:
        return self._require_started().poll() is not None

    def _answers(self, cluster_id: str) -> bool:
        """Return whether the answer comes from this broker, not from another one on the port."""
        from confluent_kafka import KafkaException

        assert self._admin is not None
        with contextlib.suppress(KafkaException):
            return bool(self._admin.list_topics(timeout=1).cluster_id == cluster_id)
        return False

    def _partitions_with_leader(self, topic: str) -> int:
        """Return the number of usable partitions of a topic; 0 for a topic that does not exist."""
        self._require_started()
        assert self._admin is not None
        metadata = self._admin.list_topics(timeout=30).topics.get(topic)
        return (
            sum(partition.leader >= 0 for partition in metadata.partitions.values())
            if metadata
            else 0
        )

    def _require_partitions(self, topic: str, partitions: int) -> None:
        """Create a topic, or raise an error if an existing one has too few partitions."""
        existing = self._partitions_with_leader(topic)
        if not existing:
            self.create_topic(topic, partitions)
        elif existing < partitions:
            raise LocalKafkaError(
                f"topic {topic!r} has {existing} partition(s), the recording needs {partitions}"
            )

    def _require_started(self) -> subprocess.Popen[bytes]:
        if self._guard is None:
            raise LocalKafkaError(
                "Kafka does not run: use `with LocalKafka() as kafka:` or call start() first"
            )
        return self._guard


class _PortTakenError(LocalKafkaError):
    """The broker could not bind a port that was free a moment ago."""


# --- records
# --------------------------------------------------------------------------------------------------


def _read_recording(path: Path) -> Iterator[tuple[str, ProducerRecord]]:
    """Yield (topic, record) from a recording, in its order."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        for line in lines:
            entry = json.loads(line)
            headers = tuple((name, _from_base64(value)) for name, value in entry["headers"] or ())
            key, value = _from_base64(entry["key_base64"]), _from_base64(entry["value_base64"])
            yield (
                entry["topic"],
                ProducerRecord(key, value, entry["partition"], entry["timestamp"], headers),
            )


def _from_base64(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)


PRODUCER_OPTIONS: dict[str, str | int] = {
    "acks": "all",
    # a retry does not reorder; idempotence would, too, but costs a second at the first record
    "max.in.flight": 1,
    "linger.ms": 5,
    "message.max.bytes": MAX_MESSAGE_BYTES,
    "message.timeout.ms": 60_000,
    # create_topic has waited: an unknown topic is a mistake
    "topic.metadata.propagation.max.ms": 2_000,
    "partitioner": "murmur2_random",  # Java's
}


def _send(
    producer: Producer, topic: str, record: ProducerRecord, on_delivery: Callable[..., None]
) -> None:
    """Queue one record, waiting while the queue is full."""
    options: dict[str, Any] = {"headers": list(record.headers), "on_delivery": on_delivery}
    if record.partition is not None:
        options["partition"] = record.partition
    if record.timestamp is not None:
        options["timestamp"] = record.timestamp
    while True:
        try:
            producer.produce(topic, record.value, record.key, **options)
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


# --- broker process
# ----------------------------------------------------------------------------------------------


def find_java() -> str:
    """Return the Java that Spark uses: JAVA_HOME's, else the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    except OSError:
        answer = ""
    version = re.search(r'version "(\d+)', answer)
    if version is None or int(version[1]) < 17:
        description = f"{java} is Java {version[1]}" if version else f"{java} is not Java"
        install = (
            "brew install openjdk@17"
            if platform.system() == "Darwin"
            else "sudo apt install openjdk-17-jdk"
        )
        raise LocalKafkaError(f"Spark and Kafka need Java 17 or 21, and {description}: {install}")
    return java


def _java_command(java: str, jars: Path, heap: str) -> list[str]:
    # The serial collector starts fastest, and a small heap does not benefit from another.
    tuning = shlex.split(os.environ.get("KAFKA_JVM_PERFORMANCE_OPTS", "-XX:+UseSerialGC"))
    log_options = [
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
    ]
    return [java, f"-Xmx{heap}", *tuning, *log_options, "-cp", f"{jars}/*"]


def _format_storage(java: list[str], properties: Path) -> str:
    """Prepare an empty data folder and return its new cluster id."""
    # 16 bytes in base64, as Kafka requires; built from hexadecimal digits so that it cannot begin
    # with "-".
    cluster_id = base64.b64encode(uuid.uuid4().hex[:16].encode()).decode().rstrip("=")
    tool = [
        *java[:1],
        "-XX:TieredStopAtLevel=1",
        *java[1:],
        "kafka.tools.StorageTool",
        "format",
        "-t",
        cluster_id,
        "-c",
        str(properties),
    ]
    done = subprocess.run(tool, capture_output=True, text=True)
    if done.returncode != 0:
        raise LocalKafkaError(
            f"Kafka cannot format its data folder:\n{(done.stdout + done.stderr)[-2000:]}"
        )
    return cluster_id


def _cluster_id(data: Path) -> str | None:
    """Return the cluster id of a data folder, None if it is new."""
    meta = data / "meta.properties"
    match = (
        re.search(r"^cluster\.id=(.*)$", meta.read_text(), re.MULTILINE) if meta.exists() else None
    )
    return match[1].strip() if match else None


def _free_port(port: int | None) -> int:
    """Return a port that is free now: the one wanted, or any."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port or 0))
        except OSError as error:
            raise LocalKafkaError(
                f"cannot use port {port} ({error.strerror}): choose another or none"
            ) from error
        return int(probe.getsockname()[1])


def _other_ports(port: int, count: int) -> list[int]:
    """Return different free ports: the operating system may repeat a port that is not bound yet."""
    ports: dict[int, None] = {}
    while len(ports) < count:
        if (other := _free_port(None)) != port:
            ports[other] = None
    return list(ports)


def _accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _poll_until(condition: Callable[[], bool], complaint: str, log: Path | None = None) -> None:
    """Wait for `condition`; raises, with the end of the log, after `START_TIMEOUT`."""
    deadline = time.monotonic() + START_TIMEOUT
    while not condition():
        if time.monotonic() > deadline:
            details = f"; the end of its log:\n{_end_of(log)}" if log else ""
            raise LocalKafkaError(f"{complaint} after {START_TIMEOUT:.0f} seconds{details}")
        time.sleep(0.05)


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-3000:].strip() or "(empty)"


def _run_guard(scratch: str, command: list[str]) -> int:
    """Run the broker until it ends, stdin's pipe closes or SIGTERM comes; return its exit code."""
    stopping = False

    def on_sigterm(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, on_sigterm)
    broker = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    while broker.poll() is None and not stopping:
        # Nothing is written into the pipe: it becomes readable when the last writer closes it.
        if select.select([0], [], [], 0.2)[0]:
            stopping = True
    if stopping:
        broker.terminate()
        try:
            broker.wait(timeout=15)
        except subprocess.TimeoutExpired:
            broker.kill()
        if scratch:  # after a broker that ended by itself the parent shows its log
            shutil.rmtree(scratch, ignore_errors=True)
    return broker.wait()


# --- broker jars
# -------------------------------------------------------------------------------------------------


def broker_jars() -> Path:
    """Return the folder of Kafka's jars, fetching them if the user's cache has none (`fetch_jars`).

    They come from Maven Central, or from the repository that ``DEFAULT_ARTIFACT_REPOSITORY`` names,
    as for Spark.

    Raises
    ------
    LocalKafkaError
        PySpark or Java is missing, or a jar cannot be fetched.
    """
    return fetch_jars(
        f"kafka-{KAFKA_VERSION}", IVY_MODULE, f"Kafka {KAFKA_VERSION}", "about 45 MB, once"
    )


def fetch_jars(folder: str, ivy_module: str, name: str, size: str) -> Path:
    """Return a folder of the user's cache with the jars of an Ivy module.

    Fetch the jars if there is no such folder.

    The progress is one line: rewritten in place in a terminal and in a notebook, written once at
    the end to a log.

    Parameters
    ----------
    folder : str
        The folder's name.
    ivy_module : str
        XML that lists the dependencies.
    name, size : str
        What is fetched, for messages.

    Raises
    ------
    LocalKafkaError
        PySpark or Java is missing, or a jar cannot be fetched.
    """
    cache = (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyspark-kafka-changelog"
    )
    jars = cache / folder
    if not jars.is_dir():
        ivy = [find_java(), "-jar", str(find_ivy())]
        cache.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(prefix="fetching-", dir=cache) as work,
            _ProgressLine() as line,
        ):
            begun = time.monotonic()
            line.show(f"Fetching {name} ({size})")
            resolve_jars(ivy, Path(work), ivy_module, name, line)
            files, megabytes = _amount(Path(work) / "jars")
            # Renamed when complete, so that a partial download is never used.
            with contextlib.suppress(OSError):
                (Path(work) / "jars").rename(jars)
            line.end(
                f"Fetched {name}: {files} files, {megabytes}, in {time.monotonic() - begun:.0f} s, "
                f"into {jars}"
            )
        if not jars.is_dir():  # another process may have renamed first
            raise LocalKafkaError(f"cannot create {jars}")
    return jars


def resolve_jars(
    ivy: list[str], work: Path, ivy_module: str, name: str, line: _ProgressLine
) -> None:
    """Resolve the jars with Ivy into ``work/jars``, and show the progress."""
    repository = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")
    (work / "settings.xml").write_text(
        IVY_SETTINGS.format(root=f"root={quoteattr(repository)}" if repository else "")
    )
    (work / "ivy.xml").write_text(ivy_module)
    pattern = f"{work}/jars/[artifact]-[revision](-[classifier]).[ext]"
    files = [
        "-settings",
        f"{work}/settings.xml",
        "-ivy",
        f"{work}/ivy.xml",
        "-cache",
        f"{work}/cache",
    ]
    command = [*ivy, *files, "-retrieve", pattern]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        problems = _show_progress(process.stdout, f"Fetching {name}: ", work / "cache", line)
    if process.returncode != 0:
        raise LocalKafkaError(f"cannot fetch {name}:\n{problems}")


def _show_progress(output: Iterable[str], title: str, cache: Path, line: _ProgressLine) -> str:
    """Show the jars that Ivy has found and fetched; return Ivy's problem summary."""
    resolved = 0
    problems: list[str] = []
    for text in output:
        if re.match(r"\s*found \S+#\S+ in", text):
            resolved += 1
            line.show(f"{title}{resolved} found")
        elif match := re.match(r"\s*\[SUCCESSFUL \] \S+!(\S+)", text):
            files, megabytes = _amount(cache)
            line.show(f"{title}{files} of {resolved} files, {megabytes}: {match[1]}")
        elif problems or ":: problems summary" in text:
            problems.append(text)
    return "".join(text for text in problems[1:] if text.strip())


_FETCHED = (".jar", ".zip", ".gz", ".tgz", ".xz", ".txz")


def _amount(folder: Path) -> tuple[int, str]:
    """Return the number of fetched files in a folder, and their size.

    Ivy's cache has descriptions beside these files.
    """
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.suffix in _FETCHED]
    return len(sizes), f"{sum(sizes) / 1e6:,.0f} MB"


class _ProgressLine:
    """A line, rewritten in place in a terminal and in a notebook; a log gets only its end."""

    def __init__(self) -> None:
        is_notebook = type(sys.stderr).__module__.startswith("ipykernel")
        # A notebook shows standard error in a red box, like an error.
        self._file = sys.stdout if is_notebook else sys.stderr
        self._is_live = is_notebook or sys.stderr.isatty()
        self._columns = 100 if is_notebook else shutil.get_terminal_size().columns - 1
        self._shown = 0

    def __enter__(self) -> _ProgressLine:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Remove what is shown, so that an error stands alone."""
        if self._shown:
            self.show("")
            print(end="\r", file=self._file, flush=True)

    def show(self, text: str) -> None:
        """Replace the line, where somebody watches it."""
        if self._is_live:
            shown = text[: self._columns]
            # Blanks, since a notebook does not know the escape sequence that erases a line.
            print(f"\r{shown:{self._shown}}", end="", file=self._file, flush=True)
            self._shown = len(shown)

    def end(self, text: str) -> None:
        """Replace the line by a last one, which stays."""
        self.show("")
        self._shown = 0
        print(f"\r{text}" if self._is_live else text, file=self._file, flush=True)


def find_ivy() -> Path:
    """Return PySpark's Ivy jar."""
    pyspark = importlib.util.find_spec("pyspark")
    homes = [
        *(pyspark.submodule_search_locations or [] if pyspark else []),
        os.environ.get("SPARK_HOME", ""),
    ]
    for home in filter(None, homes):
        for ivy in sorted(Path(home, "jars").glob("ivy-*.jar")):
            return ivy
    raise LocalKafkaError(
        'PySpark, whose Ivy fetches Kafka, is missing: pip install "pyspark-kafka-changelog[spark]"'
    )


# --- terminal
# --------------------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    """Run a broker in the foreground until Ctrl-C; return the exit code."""
    if arguments[:1] == ["--guard"]:
        return _run_guard(arguments[1], arguments[2:])
    parser = argparse.ArgumentParser(
        prog="python -m normalize.local_kafka", description="Run a single-node Kafka."
    )
    parser.add_argument(
        "--port", type=int, default=9092, help="port on 127.0.0.1 (default %(default)s)"
    )
    parser.add_argument(
        "--data-dir", help="keep topics here between runs (default: a temporary folder)"
    )
    parser.add_argument(
        "--fetch", action="store_true", help="fetch Kafka's jars, if the cache has none, and exit"
    )
    parser.add_argument(
        "--recording", help="a recorded topic to write again, such as one of demo/topics/records"
    )
    parser.add_argument("--topic", help="the topic for --recording (default: its own)")
    options = parser.parse_args(arguments)
    try:
        if options.fetch:
            broker_jars()
            return 0
        with LocalKafka(options.port, options.data_dir) as kafka:
            if options.recording:
                number = kafka.load_recording(options.recording, options.topic)
                print(f"wrote {number:,} records of {options.recording}")
            print(
                f"Kafka {KAFKA_VERSION} runs at {kafka.bootstrap_servers}; Ctrl-C stops it",
                flush=True,
            )
            code = kafka.wait()
            print(f"Kafka ended by itself with exit code {code}", file=sys.stderr)
            return 1
    except KeyboardInterrupt:
        return 0
    except LocalKafkaError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
