"""Hostile text, and messages of every format."""

from hypothesis import strategies as st

from tests.support.scenarios import OF_FORMAT

HOSTILE = [
    "\x1b[2J\x1b[31m",
    "\x07",
    "\r",
    "\n",
    "\x9b2J",
    "\u202etxt.exe",
    "\u2066",
    "\u200b",
    "\u2028",
    "\ud800",
    "\x00",
    "<script>",
    '"""',
    "`",
]

PIECE = st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=3).map("".join)

MESSAGES = {name: case.messages for name, case in OF_FORMAT.items() if case.messages}

SCHEMA = "id INT NOT NULL, name STRING, price DECIMAL(5,2), at TIMESTAMP(3)"
