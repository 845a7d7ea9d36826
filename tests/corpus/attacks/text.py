# ruff: noqa: E501 (programs, one to a line)
"""Text that is no program, or no answer."""

X = {"inputs": [""], "outputs": ["x"]}

ATTACKS = [
    ("null", "print('x')\0", X),
    ("surrogate", "print('\udc80x')", X),
    ("surrogate returned", "def f(): return '\\ud800'", {"fn_name": "f", "inputs": [[]], "outputs": ["x"]}),
    ("syntax error", "print('x'", X),
    ("empty", "", X),
    ("prose", "The answer is x.", X),
    ("unknown encoding", "# -*- coding: nonsense -*-\nprint('y')", X),
    ("deep parentheses", "(" * 100_000 + ")" * 100_000, X),
    ("constant folding bomb", "x = (((((((1 << 99999) << 99999) << 99999))))) " + "* 2" * 10_000, X),
    ("huge line", "print('y" + "x" * 5_000_000 + "')", X),
    ("bidirectional", "print('\u202ex')", X),
    ("invisible", "print('x\u200b')", X),
    ("wrong encoding out", "import sys\nsys.stdout.buffer.write('é'.encode('latin-1'))", {"inputs": [""], "outputs": ["é"]}),
    ("null bytes out", "print('\\0x')", X),
    ("two answers", "print('x')\nprint('y')", X),
    ("number spelled differently", "print('1_0')", {"inputs": [""], "outputs": ["10"]}),
    ("not a number", "print('nan')", {"inputs": [""], "outputs": ["1.5"]}),
    ("other digits", "print('\\u0661.\\u0665')", {"inputs": [""], "outputs": ["1.5"]}),
]  # fmt: skip

LASTING = [
    ("compile bomb", "x = " + "(1,)*" * 20 + "(" + "0," * 300_000 + ")\n" + "y = 1 ** 1\n" * 10_000, X),
]  # fmt: skip
