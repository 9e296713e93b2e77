"""``cdc``, the command line: look at a topic of CDC messages, follow it as a changelog, convert it to another format.

======================  ===========================================================
command                 module
======================  ===========================================================
``cdc formats``         `cdc_cli.formats`
``cdc profile``         `cdc_cli.profile`
``cdc tail``            `cdc_cli.tail`
``cdc convert``         `cdc_cli.convert`
======================  ===========================================================

What is read of a topic is read by assignment: no consumer group is joined and no offset is committed. Standard output has the data,
standard error what there is to say about it. Exit codes: 0; 1 for a failure, which is told in a few lines; 2 for wrong usage; 130
after Ctrl-C; 141 when the reader of a pipe has gone, as a shell has it.
"""

from __future__ import annotations


def main() -> None:
    """Run the command that ``sys.argv`` says; the entry point ``cdc``."""
    try:
        from .app import app
    except ImportError as error:
        raise SystemExit(f"error: the command line needs {error.name}: pip install 'pyspark-kafka-changelog[cli]'") from None
    app(prog_name="cdc")
