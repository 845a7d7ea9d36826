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
    "equations still to be solved": [
        ("x = 77", ["77", "x=77", "77=x", r"x=\frac{154}{2}"], ["x+173=250", "250=x+173", "2x=154", "x-77=0", "-x=-77", "x=78"]),
        ("x = 2", ["2", "x=2", r"x=\sqrt4", r"2x=4\Rightarrow x=2"], ["x+5=7", "x-5=-3", "-x=-2", "x-2=0", "7=5+x", "x^2=4", "x+x=4"]),
        ("x=2, y=3", ["x=2,y=3", "y=3,x=2"], ["x+1=3, y=3", "x-2=0,y-3=0", "x+y=5,y=3"]),
        ("y = x^2 - 3", ["y+3=x^2", "y=x^2-3", "x^2-y=3"], ["y-3=x^2"]),
        ("k = -1", ["-1", "k=-1"], ["-k=1", "k+1=0"]),
    ],
    "words that scale": [
        ("5", ["5", r"5\text{ apples}", r"5\text{ pairs}", r"5\text{ real roots}", "5 m", r"5\text{ quarters}"], [r"5\text{ millions}", r"5\text{ million}", r"5\text{ billions}", r"5\text{ thousands}", r"5\text{ dozens}", r"5\text{ tens}", r"5\text{ hundreds}", r"5\text{ hundredths}", r"5\text{ lakh}", r"5\text{ crore}", r"5\text{ crores}", r"5\text{ permille}", r"5\text{ per mille}", r"5\text{ basis points}", r"5\text{ ppm}", r"5\text{ double}", r"5\text{ doubled}", r"5\text{ tripled}", r"5\text{ negative}", r"5\text{ reciprocal}", r"5\text{ fewer}", "5M", "5 millions", "5 thousands", "5 dozen"]),
        ("3", ["3"], [r"3\text{ halves}", r"3\text{ thirds}", r"3\text{ tenths}", r"3\text{ fifths}", "3 halves"]),
        ("5000000", [r"5\text{ million}", r"5\text{ millions}", "5 million", r"5\times 10^6", r"0.005\text{ billion}"], [r"5\text{ billion}", "5", "5 thousand"]),
        ("5000", [r"5\text{ thousands}", "5 thousand", r"5\text{ thousand}"], ["5", "5 million"]),
        (r"\$5{,}200{,}000", [r"\$5.2\text{ million}", r"\$5.2 million", r"5.2\text{ million dollars}", "5200000"], ["5.2", r"\$5.2\text{ billion}", r"\$5.02\text{ million}"]),
        ("1200000", [r"1{,}200\text{ thousand}", "1.2 million", "1,200 thousand"], [r"1{,}200\text{ million}"]),
        ("36", [r"3\text{ dozen}", "3 dozen", r"3\text{ dozen eggs}", "36"], ["3", r"36\text{ dozen}", r"3\text{ dozens of dozens}"]),
    ],
    "rounded golds": [
        ("0.333333333333", [r"\frac13", "0.333333333333", "0.3333333333333333"], ["0.3333", r"\frac{1}{3.00001}", "0.333333333433", "0.33333333333"]),
        ("3.1415926536", ["3.14159265359", r"\pi", "3.1415926536"], ["3.14159", "3.1415926538", r"\frac{22}{7}"]),
        ("1.41421356237", [r"\sqrt2", "1.4142135623730951", r"\frac{2}{\sqrt2}"], ["1.41421356", r"\sqrt{2.0000001}", "1.41421356247"]),
        ("1.0", ["1.0000000001", "1"], ["1.00001", "1.01", "0.9"]),
        ("1234567890.12", ["1234567890.12", "1234567890.123"], ["1234567890.13", "1234567890.11", "1234567891"]),
        ("0.33", ["0.33", r"\frac{33}{100}"], [r"\frac13", "0.3333"]),
        ("3.14", ["3.14"], [r"\pi", "3.1415"]),
        (r"\frac13", [r"\frac13", r"0.\overline{3}"], ["0.333333333333", "0.3333333333333333"]),
    ],
}  # fmt: skip

COMPLETIONS = {
    "a box in an expression": [
        ("5", r"$−\boxed{5}$", 0), ("5", r"$- \boxed{5}$", 0), ("5", r"$20 - \boxed{5}$", 0), ("5", r"$20/\boxed{5}$", 0), ("5", r"$3 * \boxed{5}$", 0), ("5", r"$3*\boxed{5}$", 0), ("5", r"$\boxed{5}*3$", 0), ("5", r"$\boxed{5}x$", 0), ("5", r"$\boxed{5}!$", 0), ("5", r"$-(\boxed{5})$", 0), ("5", r"$x^{\boxed{5}}$", 0), ("5", r"$a_{\boxed{5}}$", 0), ("5", r"$$- \boxed{5}$$", 0), ("5", r"\(- \boxed{5}\)", 0), ("5", "\\[\nx - \\boxed{5}\n\\]", 0), ("5", r"20 - \boxed{5}", 0), ("5", r"x = - \boxed{5}", 0), ("5", r"The result is − \boxed{5}", 0), ("5", r"$x - \boxed{5}$", 0), ("5", r"$(a+b) - \boxed{5}$", 0), ("5", r"$x / \boxed{5}$", 0), ("5", r"$2x\boxed{5}$", 0), ("5", r"$\boxed{5} x$", 0), ("5", r"$(\boxed{5})^2$", 0), ("5", r"$\boxed{5}(x+1)$", 0), ("5", r"$\boxed{5} − 3$", 0), ("5", r"$\boxed{5}·3$", 0), ("5", r"$3 × \boxed{5}$", 0), ("5", r"$|\boxed{5}|$", 0),
        ("3", r"$\boxed{3}.14$", 0), ("3", r"\boxed{3}.14", 0), ("42", r"\boxed{42} million", 0), ("42", r"$\boxed{42}$ million", 0), ("42", r"$\boxed{42}\text{ thousand}$", 0), ("42", r"\boxed{42} dozen", 0), ("42000000", r"\boxed{42} million", 0),
        ("5", "- \\boxed{5}", 1), ("5", "So:\n- \\boxed{5}", 1), ("5", "So:\n* \\boxed{5}", 1), ("5", "So:\n  + 3\n  - $\\boxed{5}$", 1), ("5", r"The answer — \boxed{5}", 1), ("5", r"Final answer - \boxed{5}", 1), ("5", r"**Final answer** - $\boxed{5}$", 1), ("5", r"Part (a) - \boxed{5}", 1), ("5", r"The answer: \boxed{5}", 1), ("5", r"$x = \boxed{5}$", 1), ("5", r"$20 - 15 = \boxed{5}$", 1), ("5", r"\boxed{5}.", 1), ("5", r"It is \boxed{5}!", 1), ("5", r"**\boxed{5}**", 1), ("5", r"*\boxed{5}*", 1), ("5", r"**Answer:** \boxed{5}", 1), ("5", r"**Answer** \boxed{5}", 1), ("5", r"*The answer is 5* $\boxed{5}$", 1), ("5", r"The value of $x$ - \boxed{5}", 1), ("5", r"\text{Answer: }\boxed{5}", 1), ("5", r"$\boxed{5}$ apples, a bag of them.", 1), ("5", r"\boxed{5}m", 1), ("5", r"\boxed{5} cm", 1), ("5", r"(\boxed{5})", 1), ("5", r"$(\boxed{5})$", 1), ("5", r"$\implies\boxed{5}$", 1), ("5", "It costs \\$20. The answer - \\boxed{5}", 1), ("5", "> \\boxed{5}", 1), ("5", r"1) \boxed{5}", 1), ("5", r"$\boxed{5}$, a prime", 1), ("-5", r"$\boxed{-5}$", 1), ("(1,5)", r"$x=1$ - so \boxed{(1,5)}", 1), ("3.14", r"\boxed{3.14}", 1), ("42000000", r"\boxed{42\text{ million}}", 1),
    ],
    "hedges": [
        ("42", r"The answer is 43 or \boxed{42}", 0), ("42", r"Either 41, 43 or \boxed{42}", 0), ("42", r"$43$ or $\boxed{42}$", 0), ("42", r"It is 43, or \boxed{42}.", 0), ("42", r"perhaps a prime or \boxed{42}", 0), ("0.5", r"That is $\frac12$ or \boxed{0.5}.", 1), ("42", r"42 or \boxed{42}", 1),
        ("42", r"\boxed{42}... wait, it should be 43.", 0), ("42", r"\boxed{42}. Wait, it should be 43.", 0), ("42", r"\boxed{42}. Actually, 43.", 0), ("42", r"\boxed{42}, no, $43$", 0), ("42", r"\boxed{42}. I think this should be 43.", 0), ("42", r"\boxed{42}. Sorry, I mean 43.", 0), ("42", r"\boxed{42}. Wait, 6 \cdot 7 = 42.", 1), ("42", r"\boxed{42}. Actually a nice number.", 1), ("42", r"\boxed{42}. This should be 42.", 1), ("42", r"\boxed{42}. Note that it is even.", 1), ("42", r"\boxed{42}... wait, 43. \boxed{43}", 0), ("42", r"\boxed{43}... wait, it should be \boxed{42}", 1),
    ],
}  # fmt: skip
