"""Compare rules of token credit on a tiny model, on a CPU; `make quickstart` runs this.

It runs `delta-trl compare` with three rules and one seed, and says what was learned and what to open. The model is
evaluated before and after training, on problems that neither warm-up nor training shows.

    python scripts/quickstart.py --seeds 3 --arms none delta my_module.MyRule --output_dir outputs/mine

All options are those of `delta-trl compare`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path


ROOT = Path(__file__).resolve().parents[1]  # the recipe's paths are relative to it
# A part of the recipe's 80 steps; before and after them, one completion of each test problem, sampled as in training
COMPARE = """\
compare --config recipes/quickstart/addition.yaml --max_steps 28 --num_completions_to_print 0 --seeds 1
--eval_dataset_name recipes/quickstart/test.jsonl --eval_strategy steps --eval_steps 14 --eval_on_start true
--num_generations_eval 1 --per_device_eval_batch_size 256 --arms none delta side_weights
--output_dir outputs/quickstart"""


def main() -> None:
    options = sys.argv[1:]
    if any(word in ("-h", "--help") for word in options):
        sys.exit(__doc__)
    words = [*COMPARE.split(), *options]
    print("$ delta-trl", *words, flush=True)
    # One thread: on busy cores, threads that wait for each other make a model this small many times slower.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    code = subprocess.call([sys.executable, "-m", "delta_trl", *words], cwd=ROOT, env=environment)
    if code:
        sys.exit(code)
    places = [i for i, word in enumerate(words) if word == "--output_dir"]
    folder = ROOT / words[places[-1] + 1]
    compared = json.loads((folder / "compare.json").read_text())
    before = compared["before"]["eval_reward"]
    print(f"\nThe model solved {before:.0%} of the test problems before training.")
    for arm, reached in compared["means"].items():
        print(f"After training with {arm}, it solves {reached['eval_reward']:.0%}.")
    print(f"Open {folder / 'compare.html'} in a browser: it links the report of each run, with every token shaded.")


if __name__ == "__main__":
    main()
