"""`tools.versions`: what is compared. The registries themselves are asked by hand."""

import re

from tools.versions import NEWEST, OF_IMAGES, Pin, behind, images, newest, pins, requirements

PRINTED = """\
\tfound org.postgresql#postgresql;42.7.14 in central
\t[42.7.14] org.postgresql#postgresql;latest.release
\t[4.0.4] org.apache.spark#spark-sql-kafka-0-10_2.13;4.0.+
"""


def test_the_pins_whose_line_has_another_version_are_behind() -> None:
    kafka, postgresql = "org.apache.spark:spark-sql-kafka-0-10_2.13", "org.postgresql:postgresql"
    lines = {kafka: "4.0.+", postgresql: NEWEST}
    served = {(name, lines[name]): version for name, version in newest(PRINTED).items()}
    old, same, lost = (
        Pin(kafka, "4.0.0", "a.py", "4.0.+"),
        Pin(postgresql, "42.7.14", "b.py"),
        Pin("org.example:gone", "1", "c.py"),
    )
    assert list(behind([old, same, lost], served)) == [(old, "4.0.4"), (lost, "")]


def test_every_pin_is_a_package_with_a_version() -> None:
    found = pins()
    assert len(found) == len(set(found))
    assert all(re.fullmatch(r"[\w.-]+:[\w.-]+", pin.package) for pin in found)
    assert all(re.match(r"\d+\.\d+", pin.version) for pin in found)
    files = {pin.file for pin in found}
    assert files == {
        "bench/flink.py",
        "bench/flink_cdc.py",
        "compose.yaml",
        "normalize/local_kafka.py",
        "normalize/spark_versions.py",
    }
    assert OF_IMAGES.keys() <= images().keys()
    assert str(requirements()["msgspec"].specifier) == "<1,>=0.18"
