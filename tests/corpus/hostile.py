# ruff: noqa: E501 (tables: one line each)
r"""Completions that hang, crash or flood a grader. Each is (name, gold, completion). None is right; some have no score."""


def _boxed(answer: str) -> str:
    return f"So $\\boxed{{{answer}}}$"


def _matrix(rows: int, columns: int, entry: str = "1") -> str:
    return r"\begin{pmatrix}" + r"\\".join("&".join([entry] * columns) for _ in range(rows)) + r"\end{pmatrix}"


ANSWERS = {
    "tower": r"10^{10^{10}}",
    "long exponent": r"2^{99999999999}",
    "high root": r"\sqrt[10^9]{10^{10^9}}",
    "power with a decimal exponent": r"1.0000001^{9999.5}",
    "power of a sum": r"(1+x)^{9999}",
    "nested expansion": "((((x+1)^9+1)^9+1)^9+1)^9",
    "floor of a power": r"\lfloor e^{9999} \rfloor",
    "log of a tower": r"\log_2(2^{9999999})",
    "huge factorial": r"(10^8)!",
    "factorial of a factorial": r"((100)!)!",
    "huge binomial": r"\binom{10^9}{10^8}",
    "huge gcd": r"\gcd(10^{5000},10^{5001})",
    "max of nan": r"\max(0.5,\frac{0}{0})",
    "bessel": r"\operatorname{besselj}(10^9, 10^9)",
    "zero division": r"\frac{0}{0}",
    "infinity minus infinity": r"\infty-\infty",
    "nested fractions": r"\frac{1}{1+" * 60 + "1" + "}" * 60,
    "nested absolute values": "|" * 200 + "1" + "|" * 200,
    "nested text": r"\text{" * 100 + "a" + "}" * 100,
    "oscillating integral": r"\int_0^\infty \sin(x^x)\,dx",
    "sum": r"\sum_{k=1}^{10^{12}} \frac{1}{k^k}",
    "product": r"\prod_{k=1}^{10^9} k",
    "limit": r"\lim_{x\to 0} \frac{\sin(\tan(x))-\tan(\sin(x))}{x^{77}}",
    "determinant": r"\det\begin{pmatrix}" + r"\\".join("&".join(f"x_{{{i}{j}}}" for j in range(9)) for i in range(9)) + r"\end{pmatrix}",
    "matrix inverse": r"\begin{pmatrix}0&0\\0&0\end{pmatrix}^{-1}",
    "zero matrix": r"\operatorname{zeros}(99999,99999)",
    "matrix nested": r"\begin{pmatrix}" * 15 + "1" + r"\end{pmatrix}" * 15,
    "trigonometric identity": "+".join(rf"\sin^{{{k}}}(x+{k})\cos^{{{k}}}({k}x)" for k in range(2, 20)),
    "radical sum": "+".join(rf"\sqrt{{{p}}}" for p in range(2, 90)),
    "polynomial roots": "x^9+" * 50 + "1 = 0",
    "system": r"x^2+y^2=z^3, \sin(x+y)=z, e^{xyz}=x+y+z",
    "inequality": r"x^7 - 3x^5 + \sin x < e^x",
    "chain": "=".join("1" for _ in range(400)),
    "set of many": ",".join(str(k) for k in range(300)),
    "many signs": r"\pm 1" * 40,
    "intersection": r"\cap".join(r"\{x,y,z\}" for _ in range(30)),
    "set builder": r"\{x \mid " * 25 + "x>0" + r"\}" * 25,
    "environment nobody knows": r"\begin{qqq}" * 30,
    "digits": "9" * 900,
    "decimal digits": "0." + "3" * 900,
    "thousands": "1" + ",000" * 200 + ",00",
    "mixed number of many digits": "9" * 300 + r"\frac{" + "1" * 200 + "}{" + "7" * 200 + "}",
    "base of many": "1" * 500 + "_{" + "9" * 300 + "}",
    "python": "__import__('os').system('touch /tmp/canary')",
    "format string": "%s%n{0.__class__}",
    "surrogates": "4\ud8002",
    "right to left": "\u202e24",
    "superscripts": "9" + "⁹" * 300,
    "backslashes": "\\" * 900,
    "fractions without arguments": r"\frac" * 200,
    "commas": "," * 900,
    "units": "5 " + "m/" * 300,
    "words": "a b " * 200,
}  # fmt: skip

TEXTS = {
    "unclosed brackets": r"\[" * 30_000,
    "unclosed boxes": r"\boxed{" * 10_000,
    "boxes": r"\boxed{1}" * 10_000,
    "nested boxes": r"\boxed{" * 5_000 + "1" + "}" * 5_000,
    "boxes with or": r"\boxed{1} or " * 8_000,
    "looping answers": "answer " * 10_000,
    "answer tags": "<answer>" * 9_000,
    "think tags": "<think>" * 9_000 + "</think>" * 9_000,
    "spaces": " " * 60_000 + "Answer:" + " " * 60_000,
    "newlines": "Answer\n" * 9_000,
    "a long box": r"\boxed{" + "1+" * 30_000 + "1}",
    "no end": "x" * 100_000,
    "answer dashes": "answer - " * 6_600,
    "stars": "**Answer" * 7_500,
    "surrogates": "\ud800" * 20_000,
}

CASES = [(name, "42", _boxed(answer)) for name, answer in ANSWERS.items()]
CASES += [(f"text: {name}", "42", text) for name, text in TEXTS.items()]
CASES += [
    ("hard gold", r"\int_0^\infty \sin(x^x)\,dx", _boxed("1")),
    ("gold with a tower", r"10^{10^{10}}", _boxed("1")),
    ("huge gold", "9" * 5_000, _boxed("1")),
    ("factorial gold", r"2004!", _boxed("2005!")),
    ("simplification", "x", _boxed(r"\sqrt{x^2+\sin^2(x^x)+\cos^2(x^x)-1}")),
    ("inequality gold", "x>3", _boxed(r"\sin(x^x)>\cos x")),
    ("gold with a power of a sum", "(x+y+z)^{50}", _boxed("(x+y+z)^{49}(x+y+z+1)")),
    ("unclosed gold", r"\boxed{" * 9_000, _boxed("7")),
]  # fmt: skip
