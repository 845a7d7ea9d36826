"""The benchmarks that `--benchmarks` can name."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from accelerate.logging import get_logger
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from ..arguments.errors import UsageError
from ..arguments.lookup import import_dotted, nearest
from ..data.loading import LOCAL_FORMATS
from ..evaluation.benchmarks import BENCHMARKS, NUMBER, load_problems
from ..policy.checks import check_prompts
from .labelled import LabelledBenchmark
from .loading import LABELLED, own_file
from .sampled import SampledBenchmark


logger = get_logger(__name__)

Benchmark = SampledBenchmark | LabelledBenchmark


def make_benchmarks(args: Any, tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig) -> dict[str, Benchmark]:
    """
    Benchmarks by name. `args.benchmarks` holds names of labelled data or of `delta-trl eval`'s benchmarks (these have
    no labels: only gradients are audited), `name=source` to load either from another place, paths of your own files,
    or dotted paths of your own [`SampledBenchmark`]s. Such a class is called with the last part of its path as name,
    the tokenizer and the arguments.

    Raises:
        UsageError: If a benchmark is unknown or named twice, or nothing in it can be audited.
    """
    made: dict[str, Benchmark] = {}
    for given in args.benchmarks:
        own = Path(given).suffix in LOCAL_FORMATS and ("=" not in given or Path(given).is_file())
        path, _, source = (Path(given).stem, "", "") if own else given.partition("=")
        name = path if own or source else path.rpartition(".")[2]
        if name in made:
            raise UsageError(f"The benchmark {name!r} is named twice.")
        try:
            if own:
                made[name] = LabelledBenchmark(name, own_file(given), tokenizer, args, config)
            elif name != path:
                make = import_dotted("benchmark", path, [*LABELLED, *BENCHMARKS])
                made[name] = make(name, tokenizer, args)
            elif name in LABELLED:
                data = replace(LABELLED[name], source=source, data_file=None) if source else LABELLED[name]
                made[name] = LabelledBenchmark(name, data, tokenizer, args, config)
            elif name in BENCHMARKS:
                made[name] = _of_evaluation(name, source, tokenizer, args, config)
            else:
                raise _unknown(name)
        except (ValueError, OSError) as error:
            raise error if isinstance(error, UsageError) else UsageError(str(error)) from error
    return made


def _of_evaluation(
    name: str, source: str, tokenizer: PreTrainedTokenizerBase, args: Any, config: PretrainedConfig
) -> SampledBenchmark:
    if not args.reference_batches:
        raise UsageError(f"{name} has no labels, so that only gradients can be audited: set reference_batches.")
    benchmark = replace(BENCHMARKS[name], source=source) if source else BENCHMARKS[name]
    if benchmark.conversational is None:
        benchmark = replace(benchmark, conversational=tokenizer.chat_template is not None)
    problems = load_problems(name, benchmark)
    for warning in check_prompts(problems.rows["prompt"], tokenizer, config, args.max_completion_length, name):
        logger.warning(warning)
    rows = [{key: value for key, value in row.items() if key != NUMBER} for row in problems.rows]
    return SampledBenchmark(name, rows, problems.reward, args.max_completion_length, tokenizer, args)


def _unknown(name: str) -> UsageError:
    known = [*LABELLED, *BENCHMARKS]
    return UsageError(
        f"Unknown benchmark {name!r}{nearest(name, known)}. Expected one of {', '.join(known)}, `name=source`, "
        f"the path of a file of {', '.join(LOCAL_FORMATS)}, or your_module.YourBenchmark."
    )
