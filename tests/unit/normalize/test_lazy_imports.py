"""Importing `normalize` loads no Spark; `cdc_formats` never imports `normalize`."""

import subprocess
import sys


def loaded_by(statement: str) -> set[str]:
    code = (
        f"import sys; {statement}; print(' '.join(sorted({{name.partition('.')[0] for name in "
        "sys.modules})))"
    )
    return set(
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout.split()
    )


def test_importing_normalize_loads_no_spark():
    assert not loaded_by("import normalize") & {"pyspark", "pyarrow", "pandas", "confluent_kafka"}


def test_the_public_names_exist():
    names = loaded_by("import normalize; [getattr(normalize, name) for name in normalize.__all__]")
    assert {"pyarrow", "pyspark"} <= names


def test_without_spark_the_import_says_what_to_install():
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "try: from normalize import from_kafka_changelog\n"
        "except ImportError as error: print(error)\n"
        "from normalize.checkpoint.status import checkpoint_status"  # cdc status needs no Spark
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (
        "[MISSING_DEPENDENCY] pyspark is not installed: pip install 'pyspark-kafka-changelog[spark]'"
    )
