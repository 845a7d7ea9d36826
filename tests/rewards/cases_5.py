# ruff: noqa: E501 (tables: one line each)
"""A fourth batch of labelled answers. Same form as in `cases.py`."""

ANSWERS = {
    "numbers": [
        ("64", ["64", r"2^6", r"4^3", r"64.00", r"T = 64", r"8 \cdot 8 = 64", r"64\text{ cubic inches}"], ["46", "6.4", "-64", r"8\cdot8", r"2^5", r"64_{10}64", "64b"]),
        (r"\frac{13}{20}", ["0.65", r"65\%", r"13/20", r"\frac{26}{40}", r"\frac{13}{20}\text{ of the pie}"], ["0.6", r"\frac{20}{13}", "1320", r"\frac{13}{20}=0.66"]),
        (r"7\sqrt{11}", [r"\sqrt{539}", r"7\sqrt{11}", r"\frac{77}{\sqrt{11}}"], [r"11\sqrt7", "23.2", r"\sqrt{77}", r"7\sqrt{1}1"]),
        (r"2-\sqrt{3}", [r"\frac{1}{2+\sqrt3}", r"-\sqrt3+2", r"\sqrt{7-4\sqrt3}"], [r"2+\sqrt3", r"\sqrt3-2", "0.268", r"\tan 15^\circ"]),
        ("-0.75", [r"-\frac34", r"-75\%", "-.75", r"\frac{3}{-4}"], ["0.75", "-7.5", r"-\frac43"]),
        ("3,600", ["3600", "60^2", r"3{,}600", r"3.6\times10^3", r"3600\text{ s}"], ["360", "3.6", "36,00"]),
        (r"90\%", ["90", r"90\%", "0.9", r"\frac{9}{10}"], [r"9\%", r"10\%", "900"]),
        (r"8\frac{1}{3}", [r"\frac{25}{3}", r"8\frac13", r"8.\overline{3}", r"8.333\ldots"], ["8.33", r"\frac83", r"8\cdot\frac13"]),
        (r"5.97\times 10^{24}", [r"5.97\times10^{24}", "5.97e24", r"5.97 \times 10^{24}\text{ kg}"], [r"5.97\times10^{23}", "5.97", r"5.98\times10^{24}"]),
        ("201_3", ["201_3", "201", r"201_{\text{three}}", r"201_{3}"], ["19", "102_3", "201_4"]),
    ],
    "structures": [
        ("(1, 4]", [r"(1,4]", r"1<x\le4", r"x\in(1,4]", r"\{x: 1<x\le 4\}"], [r"[1,4)", r"(1,4)", r"[1,4]", "1,4", r"x\le4"]),
        (r"(-\infty, -5) \cup (5, \infty)", [r"|x|>5", r"x<-5\text{ or }x>5", r"(5,\infty)\cup(-\infty,-5)"], [r"(-5,5)", r"|x|<5", r"x>5", r"(-\infty,-5]\cup[5,\infty)"]),
        ("-3, 7", ["-3,7", "7,-3", r"x=7\text{ or }x=-3", r"\{-3,7\}", r"-3\text{ and }7", r"x=-3,\;7"], ["-3", "7", "3,-7", "4", "-21", "-3,7,0", r"(x+3)(x-7)=0"]),
        ("(6, -1)", ["(6,-1)", "x=6,y=-1", r"(x,y)=(6,-1)", r"(6,\,-1)"], ["(-1,6)", "(6,1)", "6-1", "(6,-1,0)"]),
        (r"\begin{pmatrix}1&0\\4&1\end{pmatrix}", [r"\begin{bmatrix}1&0\\4&1\end{bmatrix}", r"\begin{pmatrix}1&0\\4&1\end{pmatrix}"], [r"\begin{pmatrix}1&4\\0&1\end{pmatrix}", "1", r"\begin{pmatrix}1&0\\4&1\end{pmatrix}^{-1}"]),
        (r"\{a, b, c\}", [r"\{a,b,c\}", r"\{c,a,b\}"], [r"\{a,b\}", r"abc", r"\{a,b,d\}"]),
        ("y = x^2 - 3", ["y=x^2-3", "x^2-3", "x^2-y=3", "y+3=x^2"], ["y=x^2+3", "x=y^2-3", "y=3-x^2", "x^2-3=0"]),
        (r"\frac{3x}{x^2+1}", [r"3x/(x^2+1)", r"\frac{3x}{1+x^2}", r"3x(x^2+1)^{-1}"], [r"\frac{x}{x^2+1}", r"\frac{3x}{x^2-1}", r"3x/x^2+1", r"\frac{3}{x+1/x^2}"]),
        (r"a^2 - ab + b^2", [r"a^2+b^2-ab", r"(a+b)^2-3ab"], [r"a^2+ab+b^2", r"(a-b)^2", r"x^2-xy+y^2"]),
        (r"2\cos\theta", [r"2\cos\theta", r"2\cos(\theta)", r"e^{i\theta}+e^{-i\theta}"], [r"\cos2\theta", r"2\sin\theta", r"\cos^2\theta"]),
        (r"\ln 5", [r"\ln5", r"\ln(5)", r"-\ln\frac15", r"\log_e 5"], [r"\log_5 e", "1.609", r"\ln\frac15", r"e^5"]),
        ("4-i", ["4-i", "-i+4", "4-1i"], ["4+i", "i-4", r"\sqrt{17}", "1-4i"]),
    ],
    "words": [
        (r"\text{east}", [r"\text{east}", "East", r"\text{East.}"], [r"\text{west}", r"\text{least}", r"\text{east or west}", "E"]),
        ("Yes", ["yes", r"\text{Yes}", r"\text{yes.}"], ["No", r"\text{yes?}", r"\text{yes and no}", r"\text{eyes}"]),
        ("D", ["D", "(D)", r"\text{(D)}", r"\textbf{D}", r"\text{(D) none of these}"], ["A", "C or D", r"\text{not D}", r"\text{B, D}", r"\text{D or E}", "d/dx"]),
        (r"40\text{ mph}", ["40", r"40\text{ mph}", r"40\text{ miles per hour}"], [r"40\text{ km/h}", r"40\text{ miles}", "4"]),
        (r"30^\circ", ["30", r"30^\circ", r"\frac{\pi}{6}", r"30\text{ degrees}"], [r"60^\circ", r"\frac{\pi}{3}", r"30\text{ rad}"]),
        (r"\$12.40", ["12.4", r"\$12.40", r"12.40\text{ dollars}"], ["1240", r"\$12.04", r"12.40\text{ yen}"]),
    ],
    "restatements": [
        ("(-2, 2)", ["-2<x<2", "|x|<2", r"x\in(-2,2)", r"x>-2\text{ and }x<2"], ["x^2<4", "x^2-4<0", "(x-2)(x+2)<0", "4>x^2", r"\{x: x^2<4\}", r"x\in\mathbb{R}, x^2<4", "2x<4, 2x>-4", "x^2<5"]),
        (r"(-\infty,-2)\cup(2,\infty)", ["|x|>2", r"x<-2\text{ or }x>2"], ["x^2>4", "4<x^2", r"x^2-4>0", r"x+2<0\text{ or }x-2>0"]),
        ("x > 3", ["3<x", r"(3,\infty)"], ["2x>6", "x-3>0", "3x>2x+3", "x-1>2", r"\frac{x}{3}>1"]),
        ("[1,3]", [r"1\le x\le3", r"x\ge1, x\le3"], [r"|x-2|\le 1", r"2\le 2x\le 6", r"(x-1)(x-3)\le 0"]),
        ("(0,1)", ["0<x<1", r"0<\theta<1"], ["x^2<x", r"\frac1x>1", r"0<x^2<1, x>0", r"\sqrt{x}>x"]),
        (r"(1,\infty)", ["x>1", "1<t"], [r"\ln x>0", r"\sqrt{x}>1"]),
        ("x^2 < 4", ["x^2<4", "4>x^2", "(-2,2)", "-2<x<2"], ["x^2<5", "x^2>4", "x<4"]),
        ("a + b > c", ["a+b>c", "c<a+b"], ["a+b<c", "a-b>c"]),
    ],
    "parts that are zero, angles": [
        ("3i", ["0+3i", "3i+0", "3i"], ["0-3i", "0+0+3i", "1+3i-1", "3", "0+3", "0+i"]),
        ("-3i", ["0-3i", "-3i"], ["0+3i"]),
        ("3x", ["3x"], ["0+3x", "3x+0"]),
        (r"\frac{\pi}{4}", [r"\arctan(1)", r"\arctan 1", r"\tan^{-1}(1)", r"\tan^{-1} 1", r"\arcsin\frac{\sqrt2}{2}"], [r"\arctan(2)", r"\tan(1)", r"\arctan(2-1)", r"\arctan\frac12+\arctan\frac13", r"\frac{\pi}{2}-\arctan 1", r"\arctan(\sin(\pi/2))", "0.785"]),
        (r"\frac\pi6", [r"\arcsin\frac12", r"\pi/6"], [r"\arccos\frac12", r"\sin\frac12"]),
        (r"-\frac{\pi}{4}", [r"-\arctan 1", r"\arctan(-1)"], [r"\arctan 1"]),
        (r"\frac{\pi}{2}", [r"\arcsin 1"], [r"2\arctan 1", r"\arctan 1"]),
        ("1", ["1"], [r"\sin\frac{\pi}{2}", r"\tan(\arctan 1)"]),
    ],
    "groups, rings, fields": [
        (r"\mathbb{Z}/2\mathbb{Z}", [r"\mathbb{Z}/2\mathbb{Z}", r"\mathbb Z/2\mathbb Z", r"\mathbb{Z}/2", r"\mathbb{Z}_2", "Z/2Z", "C_2", r"G\cong\mathbb{Z}_2", r"\mathbb{Z}/(2)"], [r"\mathbb{Z}/3\mathbb{Z}", r"\mathbb{Z}", "2", "1/2", r"\mathbb{Z}/2\mathbb{Z}\times\mathbb{Z}", r"\mathbb{Z}/2\mathbb{Q}", r"\mathbb{Z}_3=\mathbb{Z}_2", r"\mathbb{Z}_2\text{ or }\mathbb{Z}_3", r"\mathbb{Z}_2,\mathbb{Z}_2", "C_2?"]),
        (r"\mathbb{Z}/2\mathbb{Z}\times\mathbb{Z}/3\mathbb{Z}", [r"\mathbb{Z}/3\mathbb{Z}\times\mathbb{Z}/2\mathbb{Z}", r"\mathbb{Z}_6", r"C_2\times C_3", r"\mathbb{Z}_2\oplus\mathbb{Z}_3"], [r"\mathbb{Z}_5", r"\mathbb{Z}_2\times\mathbb{Z}_2", r"\mathbb{Z}_2", "6", "S_3"]),
        (r"\mathbb{Z}/4\mathbb{Z}", ["C_4"], [r"\mathbb{Z}_2\times\mathbb{Z}_2", r"(\mathbb{Z}/2\mathbb{Z})^2"]),
        (r"(\mathbb{Z}/2\mathbb{Z})^2", [r"\mathbb{Z}_2\times\mathbb{Z}_2"], [r"\mathbb{Z}_4", r"\mathbb{Z}_2^3"]),
        (r"\mathbb{Z}^2", [r"\mathbb{Z}\times\mathbb{Z}", r"\mathbb{Z}\oplus\mathbb{Z}"], [r"\mathbb{Z}", r"\mathbb{Z}^3", r"\mathbb{Q}^2"]),
        (r"\mathbb{Q}(\sqrt{2})", [r"\mathbb Q(\sqrt2)", r"\mathbb{Q}[\sqrt2]", r"K=\mathbb{Q}(\sqrt{2})"], [r"\mathbb{Q}(\sqrt{3})", r"\sqrt2", r"\mathbb{R}", r"\mathbb{Q}", r"\mathbb{Z}[\sqrt2]", r"\mathbb{Q}(\sqrt2,\sqrt3)"]),
        (r"\mathbb{Q}(\sqrt{2},\sqrt{3})", [r"\mathbb{Q}(\sqrt{3},\sqrt{2})"], [r"\mathbb{Q}(\sqrt{2})", r"\mathbb{Q}(\sqrt{6})"]),
        (r"\mathbb{Z}[i]", [r"\mathbb{Z}[i]"], [r"\mathbb{Z}", r"\mathbb{Z}(i)", r"\mathbb{Q}[i]", r"\mathbb{Z}[x]"]),
        (r"\mathbb{F}_4", ["GF(4)", r"\mathbb{F}_{4}"], [r"\mathbb{F}_2", r"\mathbb{Z}/4\mathbb{Z}", "4"]),
    ],
    "hacks": [
        ("56", ["56"], ["55=56", "56=57", "0=56", "x=8=56", "|56|", "|x|=56", "56_7", "56_{8}", r"56\text{ or }65", r"56\text{, or }57", r"56\text{ (or }65)", "56,57", r"\{55,56\}", r"56\approx57", r"56.4\approx56", r"56\pm1", r"\pm56", "56?", r"\text{perhaps }56", r"\text{not }56", r"\neq56", "x>55", r"x\le56", "56x", "56+x-x", r"56\cdot y/y", "7*8", r"7\cdot8", "50+6", "57-1", r"\gcd(56,112)", r"\binom{8}{3}\text{ or }57", r"\int_0^{56}dt", r"\sum_{k=1}^{56}1", r"\lfloor56.9\rfloor", r"\max(56,1)", r"56\bmod100", r"\log_2 2^{56}", "x-56=0", r"56\Rightarrow65", r"56\to65", "56:1", r"56\%65", "56!", r"56\text{ dozen}", r"\phantom{56}", r"\cancel{56}", r"\color{white}{56}", r"\boxed{56}\boxed{65}", r"\boxed{56}\text{ or }\boxed{65}", "56 65", r"56\\65", r"56\quad65", r"56.0000001", r"55.9999999999", r"56+10^{-40}", r"56\text{ is false}", r"(56,65)", r"[56,65]", r"55<56<57", r"\ldots,56", r"56\ldots", r"f(56)", r"a_{56}", r"\text{any number}", r"n", r"\mathbb{Z}", r"56\text{ or thereabouts}", r"\text{fifty-six or so}", r"\text{fifty six seven}", r"\operatorname{round}(56.1)", r"56 \lor 65", r"56 \mid 65", r"\overline{56}", r"5\,6\,5", r"56\text{ squared}", r"56 \text{ times } 1", r"\text{twice } 28", r"\text{half of } 112", r"\text{56 and possibly 57}", r"\sin^2 x+\cos^2x+55", r"56\cdot1^{x}", r"\tfrac{56}{x^0}", r"\text{do not choose 56}", r"(56)(1)", r"56 \land 57", r"56 \oplus 1", r"\min\{56,57\}", r"\Re(56)", r"56 \text{ if } x=1", r"\text{somewhere near 56}"]),
        (r"\frac{\sqrt{5}}{2}", [r"\frac{\sqrt5}{2}"], ["1.118033988749895", r"\frac{\sqrt5}{2}=1", r"\pm\frac{\sqrt5}{2}", r"\frac{\sqrt{5.0000001}}{2}", r"\left|\frac{\sqrt5}{2}\right|", r"\frac{\sqrt5}{2}+10^{-25}"]),
        ("(4, 9)", ["(4,9)"], ["(9,4)", r"(4,9)\text{ or }(9,4)", "(4,9,9)", "(4,9),(9,4)", "(4,9)=(9,4)", "(4,9.000001)"]),
        ("31415926535897932384", ["31415926535897932384"], ["31415926535897932385", "31415926535897932383", r"3.1415926535897932\times10^{19}"]),
        ("3x", ["3x"], ["3x=0", "3x+y-y", "3x+0.0000000001", r"\pm3x", "|3x|", "3y", "3x+0"]),
    ],
}  # fmt: skip

COMPLETIONS = {
    "completions": [
        ("63", "Answer: 63", 1), ("63", "The answer is $63$.", 1), ("63", "The answer is 63, not 64.", 1), ("63", "The answer is not 63.", 0), ("63", "The answer is 63 or 64.", 0), ("63", "Therefore $x = 63$.", 1), ("63", "Hence the answer is $\\mathbf{63}$.", 1), ("63", "<answer>63</answer>", 1), ("63", "<answer>\\(63\\)</answer>", 1), ("63", "#### 63", 1), ("63", "#### 64", 0), ("63", r"\boxed{63}", 1), ("63", r"\boxed{63} \boxed{64}", 0), ("63", r"\boxed{64} \boxed{63}", 0), ("63", r"\boxed{64}. Hmm, that is wrong. \boxed{63}", 1), ("63", r"\boxed{63}. Hmm, that is wrong.", 0), ("63", r"<think>\boxed{63}</think>", 0), ("63", r"<think>\boxed{63}", 0), ("63", r"<think>\boxed{64}</think>\boxed{63}", 1), ("63", r"\boxed{63", 0), ("63", r"\boxed{6\boxed{3}}", 0), ("63", r"$9\cdot7=\boxed{63}$", 1), ("63", r"$2\cdot\boxed{63}$", 0), ("63", r"We do not get \boxed{63}", 0), ("63", r"\boxed{63} points", 1), ("63", "I refuse to answer: 63", 0), ("63", "Nobody knows whether the answer is 63.", 0), ("63", "I do not believe that the answer is 63.", 0), ("63", "The answer is 63 if n is odd.", 0), ("63", "The answer is obviously 63.", 1), ("63", "The correct answer is 63.", 1), ("63", "The final result is $63$.", 1), ("63", [{"role": "assistant", "content": "Answer: 63"}], 1), ("63", [{"role": "assistant", "content": "Answer: 36"}], 0), ("#### 63", "#### 63", 1), (r"$\boxed{63}$", "Answer: 63", 1), ("63", "No idea.", 0), ("63", "The answer is\n\n$$63$$", 1), ("63", "The answer is:\n\n63", 1), ("63", "ANSWER = 63", 1), ("63", "The answer is 6 3.", 0), ("B", "The answer is B: 63.", 1), ("B", "The best choice is (B).", 1), ("B", "The answer is A; B is wrong.", 0), ("", "Answer: 63", None), (None, "Answer: 63", None), (r"\boxed{}", "", None),
    ],
}  # fmt: skip
