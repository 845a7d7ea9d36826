"""What `--benchmarks` names."""

import difflib
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from ..data.loading import LOCAL_FORMATS
from ..errors import RecipeError
from ..evaluation.benchmarks import BENCHMARKS, NUMBER, load_problems
from ..tasks import TASKS
from .labelled import LabelledBenchmark
from .loading import LABELLED, own_file
from .sampled import SampledBenchmark, StudyBenchmark


STUDY = {f"study_{name}": task for name, task in TASKS.items()}

Benchmark = SampledBenchmark | LabelledBenchmark


def make_benchmarks(
    args: Any, tokenizer: PreTrainedTokenizerBase, limit: int | None, vocab_size: int
) -> dict[str, Benchmark]:
    """
    Benchmarks by name: a task of the study, labelled data, one of `delta-trl eval`'s (nothing is labelled there: only
    gradients are audited), each with `name=source` from another place, or the path of a file of one's own.

    Raises:
        RecipeError: If there is no such benchmark, it is named twice, or nothing of it can be audited.
    """
    made: dict[str, Benchmark] = {}
    for given in args.benchmarks:
        own = Path(given).suffix in LOCAL_FORMATS and ("=" not in given or Path(given).is_file())
        name, _, source = (Path(given).stem, "", "") if own else given.partition("=")
        if name in made:
            raise RecipeError(f"The benchmark {name!r} is named twice.")
        try:
            if own:
                made[name] = LabelledBenchmark(name, own_file(given), tokenizer, args, limit, vocab_size)
            elif name in STUDY and not source:
                made[name] = StudyBenchmark(name, STUDY[name], tokenizer, args)
            elif name in LABELLED:
                data = replace(LABELLED[name], source=source, data_file=None) if source else LABELLED[name]
                made[name] = LabelledBenchmark(name, data, tokenizer, args, limit, vocab_size)
            elif name in BENCHMARKS:
                made[name] = _of_evaluation(name, source, tokenizer, args)
            else:
                raise _unknown(name)
        except (ValueError, OSError) as error:
            raise error if isinstance(error, RecipeError) else RecipeError(str(error)) from error
    return made


def _of_evaluation(name: str, source: str, tokenizer: PreTrainedTokenizerBase, args: Any) -> SampledBenchmark:
    if not args.reference_batches:
        raise RecipeError(f"{name} has no labels, so that only gradients can be audited: set reference_batches.")
    benchmark = replace(BENCHMARKS[name], source=source) if source else BENCHMARKS[name]
    if benchmark.conversational is None:
        benchmark = replace(benchmark, conversational=tokenizer.chat_template is not None)
    problems = load_problems(name, benchmark)
    rows = [{key: value for key, value in row.items() if key != NUMBER} for row in problems.rows]
    return SampledBenchmark(name, rows, problems.reward, args.max_completion_length, tokenizer, args)


def _unknown(name: str) -> RecipeError:
    known = [*STUDY, *LABELLED, *BENCHMARKS]
    (nearest,) = difflib.get_close_matches(name, known, n=1, cutoff=0)
    return RecipeError(
        f"Unknown benchmark {name!r}: did you mean {nearest!r}? Expected one of {', '.join(known)}, `name=source`, or "
        f"the path of a file of {', '.join(LOCAL_FORMATS)}."
    )
