"""Bytes that may reach the host from a program or from a server of programs."""

from hypothesis import strategies as st


PARTS = [
    "1e+99999999999999999999", "1e-99999999999999999999", "9" * 5000, "7", "0.5", ".", "-", "e5",
    "nan", "NaN", "Infinity", "null", "true", "[", "]", "{", "}", ",", ":", '"', "[" * 5000,
    '{"end": ', '"status": 0}', '{"total": ', '{"value": ', "\\ud800", "\n", " ", "\x00",
]  # fmt: skip
PIECES = st.sampled_from(PARTS).map(str.encode) | st.binary(max_size=3)
BYTES = st.lists(PIECES, max_size=8).map(b"".join)
