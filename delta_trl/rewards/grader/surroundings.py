r"""Reads the text around a box: whether it negates the box or takes it back, and which other values it states.

Text before a box matters only if it negates the box or offers another value. It is read backwards from the box, past
neutral words ("is", "the answer", "x ="), to the first word that is not neutral. Text after a box matters only if it
denies the box or states another final value. It is read forwards. A value counts if it comes after "or", a correction
("wait", "no") or "it should be", with only neutral words in between, and if it ends its clause: "wait, it is 43"
counts, "wait, with n = 5 we get 42" does not.
"""

import re


# Neutral words: they do not say whether an answer holds, and are skipped.
SILENT = frozenset(
    "a actually an answer answers as be been being believe but choice correct correctly equal equals equivalently "
    "else exactly final finally find get give gives going guess have hence i in indeed is it just likely making maybe "
    "means namely now obtain of option our perhaps possibly probably really result simply so solution text that the "
    "then therefore think this thus to value was we would".split()
)
NEGATIONS = frozenset("not never neither nor cannot ne neq without except anything everything than instead".split())
DENIALS = frozenset("wrong incorrect false mistaken invalid impossible contradicts".split())
AFFIRMED = frozenset("answer case correct right true valid possible".split())
JUDGED = frozenset("answer answers choice option value result".split())
SUBJECTS = frozenset("that this it which answer result value".split())
COPULAS = frozenset("is are was were be equals seems looks".split())
AUXILIARIES = COPULAS | frozenset("can could did do does may might must should would".split())
# Words that may stand between a negation and what it negates ("does not seem to be right")
BETWEEN = SILENT | AUXILIARIES | frozenset("seem look sound my quite".split())
# Words that may precede a denial ("Hmm, but that is wrong"), that take a value back ("Wait, 43"), that hint at that.
OPENINGS = frozenset("but and so oh ah my wait hmm actually sorry however clearly no".split()) | SUBJECTS | AUXILIARIES
CORRECTIONS = frozenset("wait actually no sorry oops hmm correction mean meant rather scratch thought".split())
DOUBTS = frozenset("error mistake wrong mistaken forgot missed miscounted".split())
ROUGHLY = frozenset("about approximately around roughly nearly approx".split())
NUMBER = r"[-+−]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:/\d+)?%?(?![\w.]\w)"
TOKEN = re.compile(
    r"(?P<value>\$\$[^$]{1,200}\$\$|\$[^$\n]{1,200}\$|\\\([^\n]{1,200}?\\\)|\\\[[^\n]{1,200}?\\\]"
    rf"|(?:[A-Za-z]\s?=\s?)?{NUMBER}|\(?\b[A-J]\b\)?(?!['’]))"
    r"|(?P<word>[A-Za-z]+(?:['’][a-z]+)?)|(?P<end>[.?!](?=[\s.?!]|$)|\n{2,})|(?P<mark>\S)"
)
WORD = re.compile(r"(?<!\\)\b[A-Za-z]+(?:['’][a-z]+)?")
CLAUSE_END = re.compile(r"[\s$*]*(?:$|[.?!,;:)\]\n]|\(?(?:because|since|as|so|not|and not|which|where|instead)\b)")
EQUALS = re.compile(  # an equation continues after the box: \\boxed{15} = 3 \\cdot 5
    r"[\s)]*=\s*((?:[\d.+\-*/^{}()\s]|\\(?:cdot|times|div|[dt]?frac|sqrt|pi|overline|binom)(?![A-Za-z])){1,60})"
)
CHOICE = re.compile(r"\(?([A-J])\)?[.:]?")


def words(text: str) -> set[str]:
    """The words of a text in lower case; "n't" counts as a word, too."""
    found = [word.lower().replace("’", "'") for word in WORD.findall(text)]
    return {*found, *("n't" for word in found if word.endswith("n't"))}


def offered_before(before: str) -> list[str] | None:
    """The value offered before the box ("41 or"), if any; None if the box is negated or "or" follows no value."""
    following, offered = "", False
    for token in reversed(list(TOKEN.finditer(before[before.rfind("\n\n") + 1 :]))):
        word = _word(token).removesuffix("'s")
        if token["value"]:
            return [token[0]] if offered else []
        if word.endswith("n't") or word in NEGATIONS or token[0] == "≠":
            return None
        if word in DENIALS:
            return None if following in JUDGED or following == "that" else []
        if word == "or":
            offered = True
        elif (word and word not in SILENT and len(word) > 1) or token["end"] or (token[0] in ",;" and not offered):
            break
        following = word or following
    return None if offered else []


def is_denied(after: str) -> bool:
    """Whether the text that follows a value questions it, or calls it wrong in this sentence or the next."""
    sentences: list[list[re.Match]] = [[]]
    for token in TOKEN.finditer(after):
        if token[0] == "?" and not any(one["word"] or one["value"] for sentence in sentences for one in sentence):
            return True
        if token["end"]:
            sentences.append([])
        else:
            sentences[-1].append(token)
    for number, sentence in enumerate(sentences):
        denies = _denies(sentence)
        if denies or (denies is False and number > 0):
            return denies
    return False


def _denies(sentence: list[re.Match]) -> bool | None:
    """Whether a sentence denies what stands before it; None if it says nothing at all."""
    negated, previous = False, ""
    for number, token in enumerate(sentence):
        following = _word(sentence[number + 1]) if number + 1 < len(sentence) else ""
        word = _word(token).removesuffix("'s")
        negates = word == "not" or word.endswith("n't") or (word == "no" and number + 1 == len(sentence))
        if token["value"]:
            return False
        if negated:
            if word in AFFIRMED:
                return following != "to"  # "not possible to get more" is not about the value
            if word and not negates and word not in BETWEEN:
                return False
        elif negates:
            negated = True
        elif word in DENIALS:
            return following != "to"
        elif word in ("scratch", "ignore", "disregard"):
            return following in ("that", "this")
        elif word == "no" and following:
            return False
        elif word and word not in OPENINGS and not (word in ("a", "the") and previous in COPULAS):
            return False
        previous = word
    return True if negated else None


def stated_after(after: str, answer: str) -> list[str]:
    """The values stated beside the box ("or 43", ", 43", "= 43"), or in its place ("wait, it should be 43")."""
    stated = []
    if (equal := EQUALS.match(after)) and (value := equal[1].strip(" .")):
        stated.append(_chain(value, answer))
    beside, armed, corrects, subject, obliged, previous = True, "", False, False, False, ""
    for token in TOKEN.finditer(after):
        word = _word(token)
        if token["value"]:
            value = token[0].strip("$ ").removeprefix("\\(").removesuffix("\\)").strip()
            fits = (
                armed == "any"
                or (armed == "digits" and re.match(r"[-−]?\d", value))
                or (armed == "choice" and CHOICE.fullmatch(value))
            )
            if value and fits and "\\approx" not in value and CLAUSE_END.match(after, token.end()):
                stated.append(_chain(value, answer))
            beside, armed, subject = False, "", False
        elif token["end"]:
            armed, corrects, subject, obliged = "", False, False, False
        elif token["mark"]:
            if beside and token[0] in ",;":
                armed = "digits"
        elif word in ROUGHLY or word in NEGATIONS or word.endswith("n't"):
            beside, armed, subject = False, "", False
        elif word == "or" or (word == "alternatively" and beside):
            armed = "any" if beside or corrects else ""
        elif word == "and" and beside:
            armed, beside = "choice", False
        elif word in CORRECTIONS and not (word == "no" and re.match(r"\s+[A-Za-z]", after[token.end() :])):
            beside, armed, corrects = False, "any", True
        elif word in JUDGED and previous in DENIALS:  # "a wrong answer" is another one
            armed, corrects, subject, obliged = "", False, False, False
        else:
            name = word.removesuffix("'s")
            obliged = obliged or (subject and word in ("should", "must"))
            subject = subject or name in SUBJECTS
            equates = word in COPULAS or name != word
            if subject and ((equates and corrects) or (obliged and word == "be")):
                armed = "any"
            elif name not in SILENT | SUBJECTS | COPULAS and len(word) > 1:
                armed, corrects = "", word in DOUBTS
                subject = subject and word in ("should", "must")
            beside = beside and armed != ""
        previous = word
    return stated


def _chain(value: str, answer: str) -> str:
    """A value; an expression of numbers becomes `value = answer`, as it may be in another form than the answer."""
    letters = re.search(r"[A-Za-z=]", re.sub(r"\\[A-Za-z]+", "", value + answer))
    return value if letters or re.fullmatch(NUMBER, value) else f"{value} = {answer}"


def _word(token: re.Match) -> str:
    return (token["word"] or "").lower().replace("’", "'")
