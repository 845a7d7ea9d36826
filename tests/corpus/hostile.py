r"""
Completions that hang, crash or flood a grader, one for each of its defences. Each is (name, gold, completion). None is
right; some have no score.
"""

ROWS_OF_NINE = ["&".join(f"x_{{{i}{j}}}" for j in range(9)) for i in range(9)]
ANSWERS = {
    "tower": r"10^{10^{10}}",
    "long exponent": r"2^{99999999999}",
    "floor of a power": r"\lfloor e^{9999} \rfloor",
    "factorial of a factorial": r"((100)!)!",
    "huge binomial": r"\binom{1000000000}{100000}",
    "huge gcd": r"\gcd(10^{5000},10^{5001})",
    "nested fractions": r"\frac{1}{1+" * 60 + "1" + "}" * 60,
    "oscillating integral": r"\int_0^\infty \sin(x^x)\,dx",
    "limit": r"\lim_{x\to 0} \frac{\sin(\tan(x))-\tan(\sin(x))}{x^{77}}",
    "determinant": r"\det\begin{pmatrix}" + r"\\".join(ROWS_OF_NINE) + r"\end{pmatrix}",
    "zero matrix": r"\operatorname{zeros}(99999,99999)",
    "polynomial roots": "x^9+" * 50 + "1 = 0",  # ends by the time limit
    "chain": "=".join("1" for _ in range(400)),
    "set of many": ",".join(str(k) for k in range(300)),
    "digits": "9" * 900,
    "thousands": "1" + ",000" * 200 + ",00",
    "base of many": "1" * 500 + "_{" + "9" * 300 + "}",
    "surrogates": "4\ud8002",
    "words": "a b " * 200,
}

CASES = [(name, "42", f"So $\\boxed{{{answer}}}$") for name, answer in ANSWERS.items()]
CASES += [
    ("nested boxes", "42", r"\boxed{" * 5_000 + "1" + "}" * 5_000),
    ("boxes with or", "42", r"\boxed{1} or " * 8_000),
    ("hard gold", ANSWERS["oscillating integral"], r"\boxed{1}"),
    ("huge gold", "9" * 5_000, r"\boxed{1}"),
    ("factorial gold", r"2004!", r"\boxed{2005!}"),
    ("simplification", "x", r"\boxed{\sqrt{x^2+\sin^2(x^x)+\cos^2(x^x)-1}}"),
    ("inequality gold", "x>3", r"\boxed{\sin(x^x)>\cos x}"),
    ("unclosed gold", r"\boxed{" * 9_000, r"\boxed{7}"),
]
