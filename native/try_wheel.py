"""Decode two messages by the installed library, without Spark; another result is an error."""

import pyarrow as pa

from normalize import _native

flags = ("deleted_is_before", "missing_is_null", "needs_before", "ignores_deletes")
decoder = _native.Decoder(
    fields=[("after", "after", False, None), ("op", "operation", [("c", "+I")], None)],
    columns=[("id", ("integer", 8), False), ("name", ("text", []), False)],
    null_names=[],
    keys=[0],
    **dict.fromkeys(flags, False),
)
messages = [b'{"after":{"id":7,"name":"a"},"op":"c"}', b'{"after":{"id":7.0,"name":"a"},"op":"c"}']
changes = decoder.decode(pa.array(messages, pa.binary()))
assert (changes["keys"], changes["doubtful"]) == (b"\x91\x07", (1).to_bytes(4, "little")), changes
print(f"{_native.__file__} decodes")
