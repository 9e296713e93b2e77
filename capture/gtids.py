"""Sets of transactions, given by GTIDs: an offset stores those before its position.

========  =================================================================================
MySQL     a set: the numbers of each source, ``3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7:9``
MariaDB   a state: the last transaction of each domain and server, as domain-server-number,
          ``0-7-12,1-8-5``
========  =================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pymysqlreplication.gtid import Gtid, GtidSet

from .errors import BinlogError

UNREADABLE = "?"
"""Replaces a GTID that mysql-replication cannot read: one with a tag (MySQL 8.3)."""
_MARIADB = re.compile("([0-9]+)-([0-9]+)-([0-9]+)")


class MySqlGtids:
    """A set of MySQL transactions.

    Examples
    --------
    >>> some = MySqlGtids("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7:9")
    >>> str(some.plus(["3e11fa47-71ca-11e1-9e33-c80aa9429562:10"]))
    '3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7:9-10'
    """

    def __init__(self, text: str) -> None:
        try:
            self._set = GtidSet(text)
        except ValueError:
            raise _unreadable(text, "MySQL GTIDs without tags") from None

    def __str__(self) -> str:
        return str(self._set)

    def __contains__(self, gtid: str) -> bool:
        return gtid != UNREADABLE and Gtid(gtid) in self._set

    def includes(self, other: MySqlGtids) -> bool:
        """Return whether the set contains all of another set."""
        return all(each in self._set for each in other._set.gtids)

    covers = includes

    def plus(self, gtids: Iterable[str]) -> MySqlGtids:
        """Return the set with further transactions, which it must not contain yet."""
        union = MySqlGtids("")
        union._set = self._set
        for each in _runs(gtids):
            union._set += each
        return union

    def minus(self, gtids: Iterable[str]) -> MySqlGtids:
        """Return the set without some transactions."""
        left = self._set.gtids
        for run in _runs(gtids):
            left = [each - run for each in left]
        difference = MySqlGtids("")
        difference._set = GtidSet([each for each in left if each.intervals])
        return difference


def _runs(gtids: Iterable[str]) -> list[Gtid]:
    """Return transactions as runs of consecutive numbers, which are common in a log."""
    ends: dict[str, list[list[int]]] = {}
    for gtid in gtids:
        source, _, number = gtid.rpartition(":")
        runs = ends.setdefault(source, [])
        if runs and runs[-1][1] == int(number):
            runs[-1][1] += 1
        else:
            runs.append([int(number), int(number) + 1])
    return [
        Gtid("", source, [(first, after)]) for source, runs in ends.items() for first, after in runs
    ]


class MariaDbGtids:
    """A set of MariaDB transactions: in each domain those up to a number, from any server.

    Examples
    --------
    >>> some = MariaDbGtids("0-7-12,1-8-5")
    >>> str(some.plus(["0-9-13"])), "0-8-11" in some, "0-7-13" in some
    ('0-7-12,0-9-13,1-8-5', True, False)
    """

    def __init__(self, text: str) -> None:
        self._last: dict[tuple[int, int], int] = {}
        self._number: dict[int, int] = {}
        for gtid in text.split(",") if text.strip() else []:
            self._take(gtid)

    def _take(self, gtid: str) -> None:
        domain, server, number = _parts(gtid)
        self._last[domain, server] = number
        self._number[domain] = max(number, self._number.get(domain, 0))

    def __str__(self) -> str:
        return ",".join(
            f"{domain}-{server}-{number}" for (domain, server), number in sorted(self._last.items())
        )

    def __contains__(self, gtid: str) -> bool:
        domain, _, number = _parts(gtid)
        return number <= self._number.get(domain, 0)

    def includes(self, other: MariaDbGtids) -> bool:
        """Return whether the set contains all of another set, by domain, server and number."""
        return all(number <= self._last.get(place, 0) for place, number in other._last.items())

    def covers(self, other: MariaDbGtids) -> bool:
        """Return whether the set contains all of another set, compared by domain and number."""
        return all(
            number <= self._number.get(domain, 0) for domain, number in other._number.items()
        )

    def plus(self, gtids: Iterable[str]) -> MariaDbGtids:
        """Return the set with later transactions."""
        union = MariaDbGtids(str(self))
        for gtid in gtids:
            union._take(gtid)
        return union


def _parts(gtid: str) -> tuple[int, int, int]:
    match = _MARIADB.fullmatch(gtid.strip())
    if match is None:
        raise _unreadable(gtid, "MariaDB GTIDs, for example 0-7-12,1-8-5")
    return int(match[1]), int(match[2]), int(match[3])


def _unreadable(text: str, what: str) -> BinlogError:
    return BinlogError(f"{text[:200]!r} is not a list of {what}")


Gtids = MySqlGtids | MariaDbGtids
