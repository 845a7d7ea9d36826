"""LiveCodeBench's tests. The hidden ones are pickled; they are read without unpickling."""

import base64
import json
import pickletools
import zlib


MAX_BYTES = 1 << 29  # of one problem's hidden tests


def livecodebench_tests(row: dict) -> str | None:
    """
    The JSON text of a row's public and hidden tests, as `code_reward` takes them, or `None` if they cannot be read.

    Args:
        row (`dict`): With `public_test_cases`, `private_test_cases`, and the function's name in `metadata`.
    """
    try:
        cases = [*json.loads(row["public_test_cases"] or "[]"), *_hidden_cases(row["private_test_cases"] or "[]")]
        tests = {"inputs": [case["input"] for case in cases], "outputs": [case["output"] for case in cases]}
        if any(case["testtype"] == "functional" for case in cases):
            tests["fn_name"] = json.loads(row["metadata"])["func_name"]
    except (ValueError, KeyError, TypeError, zlib.error):
        return None
    return json.dumps(tests) if cases else None


def _hidden_cases(text: str) -> list[dict]:
    """Read JSON, or a base64 text of a compressed pickle of it."""
    try:
        return json.loads(text)
    except ValueError:
        data = base64.b64decode(text, validate=True)
    unpacker = zlib.decompressobj()
    pickled = unpacker.decompress(data, MAX_BYTES)
    if unpacker.unconsumed_tail:
        raise ValueError(f"more than {MAX_BYTES} bytes of tests")
    # Unpickling could run code from the file. A single text can be read from the opcodes; anything else is refused.
    texts = []
    for opcode, argument, _ in pickletools.genops(pickled):
        if opcode.name in ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"):
            texts.append(str(argument))
        elif opcode.name not in ("PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "STOP"):
            raise ValueError(f"the pickle holds more than a text: {opcode.name}")
    (content,) = texts
    return json.loads(content)
