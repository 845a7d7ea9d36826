"""Describes in words how completions were sampled: an accuracy means little without that."""


def describe(
    temperature: float, top_p: float | None = None, top_k: int | None = None, min_p: float | None = None
) -> str:
    """`sampled at temperature 1, top-p 0.7`: both are always named, the others if they cut something off."""
    if temperature == 0:
        return "decoded greedily"
    words = [f"temperature {temperature:g}", f"top-p {1 if top_p is None else top_p:g}"]
    if top_k is not None and top_k > 0:
        words.append(f"top-k {top_k}")
    if min_p:
        words.append(f"min-p {min_p:g}")
    return f"sampled at {', '.join(words)}"
