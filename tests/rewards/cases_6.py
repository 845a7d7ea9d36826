# ruff: noqa: E501 (tables: one line each)
"""A sixth batch of labelled answers. Same form as in `cases.py`."""

ANSWERS = {
    "arithmetic left undone": [
        ("14.5", ["14.5", r"\frac{29}{2}", "14.50"], [r"3\cdot 2.50+4\cdot 1.75", r"3(2.50)+4(1.75)", "10+4.5"]),
        (r"\$14.50", [r"\$14.50", "14.5"], [r"3\cdot 2.50+4\cdot 1.75", r"\$7.50+\$7.00"]),
        ("42", ["42", r"\frac{84}{2}", "6 \\cdot 7 = 42", "40+2=42"], ["40.0+2", "40^1+2^1", r"42+\pi-\pi", "42+i-i", r"42+2\pi-\pi-\pi", r"42+\sqrt2-\sqrt2", r"42\cdot 1.0", r"21.0\cdot 2", "40^1+2", r"3\cdot 2\cdot 7^1", r"52-2^3-2", "42+i^2+1"]),
        ("391", ["391"], [r"17^1\cdot23^1", r"17\cdot23", r"17^{1}\cdot 23"]),
        ("64", ["64", "2^6", "4^3", r"2^{6}"], [r"80 - 0.2\cdot 80", r"80-16.0", r"0.8\cdot 80"]),
        ("12", ["12", r"\frac{24}{2}"], [r"15\%\cdot 80", r"0.15\cdot 80", r"\frac{15}{100}\cdot 80"]),
        (r"\frac34", ["0.75", r"\frac34", "3/4", r"75\%"], ["1-0.25", r"1-\frac14", r"3\cdot 0.25", r"0.5+0.25"]),
        ("x<42", ["x<42", "42>x", r"x<\frac{84}{2}"], ["x<40+2", "40+2>x", "x<6\\cdot 7"]),
        ("0<x<42", ["0<x<42", "(0,42)"], ["0<x<40+2", "(0,40+2)", "0<x<6\\cdot7"]),
        (r"(-\infty,1)\cup(42,\infty)", [r"x<1\text{ or }x>42"], [r"(-\infty,1)\cup(40+2,\infty)", r"x<1\text{ or }x>40+2"]),
        (r"42\text{ hours}", ["42", r"42\text{ hours}", r"2520\text{ minutes}"], [r"60(40+2)\text{ minutes}", r"60\cdot 42\text{ minutes}", r"(40+2)\text{ hours}"]),
        ("0.42", ["0.42", r"42\%"], [r"(40+2)\%", r"0.4+0.02", r"6\cdot 7\%"]),
        (r"\begin{pmatrix}42&1\\0&3\end{pmatrix}", [r"\begin{bmatrix}42&1\\0&3\end{bmatrix}", r"\begin{pmatrix}42&1\\0&\frac62\end{pmatrix}"], [r"\begin{pmatrix}40+2&1\\0&3\end{pmatrix}", r"\begin{pmatrix}42&1\\0&1.5\cdot 2\end{pmatrix}"]),
        ("1024", ["2^{10}", "1024", r"2\cdot 2^9"], ["1000+24", r"2^{9}+2^{9}"]),
        ("1023", ["2^{10}-1", "1023"], ["1000+23", "2^{9}+500+11"]),
        ("72", [r"2^3\cdot 3^2", "72"], [r"8\cdot 9"]),
        (r"3\sqrt2", [r"3\sqrt2", r"\sqrt{18}"], ["4.2426", r"\sqrt{20}"]),
        (r"1+\sqrt2", [r"1+\sqrt2", r"\sqrt2+1"], ["2.414"]),
        ("2+3i", ["2+3i", "3i+2"], ["2+3", "1+1+3i"]),
        ("40+2", ["40+2", "42"], ["43", "40+3"]),
        (r"2\cdot 21", [r"2\cdot 21", "42"], ["43"]),
        (r"2\frac12", ["2.5", r"2\frac12", r"\frac52"], [r"2+0.5", r"2+\frac12"]),
        ("6000", [r"6\cdot 10^3", r"6.0\times 10^3"], [r"6\cdot 1000"]),
        ("28", ["2.8e1", r"2.8\times 10^1"], ["10^1+18", r"10^1\cdot 2\cdot 1.4"]),
        ("-1", ["i^2", "-1"], ["i^2+0.0", "i-i-1"]),
    ],
}  # fmt: skip

COMPLETIONS = {}  # fmt: skip
