"""
Token credit for completions that you already have: any causal language model, no training.

    python scripts/explain_completions.py --model Qwen/Qwen3-0.6B --data completions.jsonl --output outputs/explained

Every line of the data is `{"prompt": "…", "completion": "…", "reward": 1.0}`; a prompt may be a list of chat messages,
a reward `null` where it is not known. Completions of the same prompt are a group: their rewards become advantages as
in GRPO. The coefficients are those that DelTA would train with if the file were one rollout batch, sampled from the
model at temperature 1. Writes what training records, and the report of `delta-trl inspect` over it.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

from delta_trl.credit import (
    FullGradients,
    LMHead,
    LMHeadGradients,
    OutputRowGradients,
    TopKHiddenGradients,
    token_coefficients,
)
from delta_trl.errors import RecipeError
from delta_trl.report import write_report
from delta_trl.token_log.log import TokenTypes, serialize, write_atomically
from delta_trl.token_log.records import COMPLETIONS, COMPLETIONS_FILE, FOLDER, TOKEN_TYPES_FILE
from delta_trl.token_log.texts import TokenTexts


TOP_K = 20  # of topk_hidden


def parse_args(args: Sequence[str] | None = None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="hub id or folder of a causal language model")
    parser.add_argument("--data", type=Path, required=True, help="JSON lines: prompt, completion, reward")
    parser.add_argument("--output", type=Path, required=True, help="folder for the records and report.html")
    parser.add_argument(
        "--token-gradient", default="output_row", choices=["output_row", "topk_hidden", "lm_head", "full"]
    )
    parser.add_argument("--batch-size", type=int, default=4, help="completions in a forward pass")
    parser.add_argument("--dtype", default="auto", choices=["auto", "bfloat16", "float32"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--min-count", type=int, default=5, help="how often a token must occur to be in the clouds")
    args = parser.parse_args(args)
    if args.batch_size < 1 or args.min_count < 1:
        parser.error("--batch-size and --min-count must be positive")
    return args


def read_rows(path: Path) -> list[dict]:
    """The lines of the data, with `group`: which prompt it is, counted from 0."""
    rows, groups = [], {}
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"--data {path} cannot be read: {error}")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            prompt, completion, reward = row["prompt"], row["completion"], row["reward"]
        except (ValueError, KeyError, TypeError) as error:
            sys.exit(f"{path}, line {number}: expected an object with prompt, completion and reward ({error!r})")
        if not (isinstance(prompt, (str, list)) and isinstance(completion, str)):
            sys.exit(f"{path}, line {number}: the prompt must be a string or messages, the completion a string")
        try:  # an integer of JSON may be too large for a float
            usable = reward is None or (isinstance(reward, (int, float)) and math.isfinite(reward))
        except OverflowError:
            usable = False
        if not usable:
            sys.exit(f"{path}, line {number}: the reward must be a finite number or null, got {reward!r}")
        reward = None if reward is None else float(reward)  # also of integers and booleans
        group = groups.setdefault(json.dumps(prompt), len(groups))
        rows.append({"prompt": prompt, "completion": completion, "reward": reward, "group": group})
    if not rows:
        sys.exit(f"{path} has no lines")
    return sorted(rows, key=lambda row: row["group"])


def add_advantages(rows: list[dict]) -> None:
    """(r - mean) / (std + 1e-4) over each group, as in GRPO; 0 without a reward."""
    rewards = torch.tensor([math.nan if row["reward"] is None else row["reward"] for row in rows])
    groups = torch.tensor([row["group"] for row in rows])
    for group in groups.unique():
        inside = (groups == group) & ~rewards.isnan()
        r = rewards[inside]
        scaled = (r - r.mean()) / (r.std() + 1e-4) if len(r) > 1 else torch.zeros_like(r)
        rewards[inside] = scaled
    for row, advantage in zip(rows, rewards.nan_to_num(0.0).tolist(), strict=True):
        row["advantage"] = advantage


def add_tokens(rows: list[dict], tokenizer) -> None:
    """Adds `prompt_ids` and `token_ids`; a chat becomes the text that the model reads."""
    for row in rows:
        if isinstance(row["prompt"], list):
            row["prompt"] = tokenizer.apply_chat_template(row["prompt"], tokenize=False, add_generation_prompt=True)
            row["prompt_ids"] = tokenizer(row["prompt"], add_special_tokens=False).input_ids
        else:
            row["prompt_ids"] = tokenizer(row["prompt"]).input_ids
        row["token_ids"] = tokenizer(row["completion"], add_special_tokens=False).input_ids
        if not row["prompt_ids"]:
            sys.exit("a prompt without any token: nothing predicts the completion's first one")


class Scorer:
    """
    Forward passes over micro-batches of rows. Tokens are numbered through the completions of all rows.

    Args:
        model (`PreTrainedModel`): The causal language model.
        rows (`list[dict]`): With `prompt_ids` and `token_ids`.
        batch_size (`int`): Rows in a pass.
    """

    def __init__(self, model, rows: list[dict], batch_size: int):
        self.model = model
        self.batches = [rows[i : i + batch_size] for i in range(0, len(rows), batch_size)]

    def predictions(self, i: int, hidden_states: bool = False):
        """Log-probabilities of the next token (n, V) and final hidden states (n, d) before each completion token."""
        sequences = [row["prompt_ids"] + row["token_ids"] for row in self.batches[i]]
        longest = max(map(len, sequences))
        ids = torch.zeros(len(sequences), longest, dtype=torch.long)
        attention, predicts = torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
        for k, (row, sequence) in enumerate(zip(self.batches[i], sequences, strict=True)):
            ids[k, : len(sequence)] = torch.tensor(sequence)
            attention[k, : len(sequence)] = 1
            predicts[k, len(row["prompt_ids"]) - 1 : len(sequence) - 1] = True
        ids, attention, predicts = (x.to(self.model.device) for x in (ids, attention, predicts))
        output = self.model(
            input_ids=ids, attention_mask=attention, use_cache=False, output_hidden_states=hidden_states
        )
        log_probs = output.logits[predicts].float().log_softmax(dim=-1)
        return log_probs, output.hidden_states[-1][predicts] if hidden_states else None

    def tokens(self, i: int) -> torch.Tensor:  # (n,)
        ids = [token for row in self.batches[i] for token in row["token_ids"]]
        return torch.tensor(ids, dtype=torch.long, device=self.model.device)

    def log_probs(self, i: int) -> torch.Tensor:  # (n,)
        return self.predictions(i)[0].gather(1, self.tokens(i)[:, None])[:, 0]

    @torch.no_grad()
    def everything(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Of all N tokens: ids (N,), log-probabilities (N,), entropies (N,) and hidden states (N, d)."""
        parts = []
        for i in tqdm(range(len(self.batches)), desc="scoring"):
            predictions, hidden = self.predictions(i, hidden_states=True)
            tokens = self.tokens(i)
            log_probs = predictions.gather(1, tokens[:, None])[:, 0]
            entropies = -(predictions.exp() * predictions).nan_to_num(0.0).sum(dim=1)
            parts.append((tokens, log_probs, entropies, hidden))
        return tuple(torch.cat(x) for x in zip(*parts, strict=True))


def add_credit(rows: list[dict], model, args) -> torch.Tensor:
    """Adds `coefficients`, `log_probs` and `entropies` to the rows; returns the advantage of every token (N,)."""
    scorer = Scorer(model, rows, args.batch_size)
    tokens, log_probs, entropies, hidden = scorer.everything()
    lengths = [len(row["token_ids"]) for row in rows]
    advantages = torch.tensor([row["advantage"] for row in rows]).repeat_interleave(torch.tensor(lengths))
    if args.token_gradient == "output_row":
        gradients = OutputRowGradients(hidden, log_probs)
    elif args.token_gradient == "full":
        gradients = FullGradients(model, scorer.log_probs, len(scorer.batches))
    else:
        head = LMHead.of(model, temperature=1.0)
        head.check(hidden, tokens, log_probs)
        if args.token_gradient == "lm_head":
            gradients = LMHeadGradients(hidden, tokens, head)
        else:
            gradients = TopKHiddenGradients(hidden, tokens, head, min(TOP_K, len(head.weight)))
    coefficients = token_coefficients(gradients, advantages.to(model.device))
    values = {"coefficients": coefficients, "log_probs": log_probs, "entropies": entropies}
    for name, column in values.items():
        for row, part in zip(rows, column.cpu().split(lengths), strict=True):
            row[name] = part.tolist()
    return advantages


def write_records(rows: list[dict], advantages: torch.Tensor, tokenizer, vocab_size: int, folder: Path) -> None:
    texts, types = TokenTexts(tokenizer), TokenTypes(vocab_size)
    records = [
        {
            **row,
            "step": 0,
            "prompt_index": row["group"],
            "rewards": [("reward", row["reward"])],
            "tokens": texts.of_sequence(row["token_ids"]),
        }
        for row in rows
    ]
    write_atomically(serialize(pa.Table.from_pylist(records, COMPLETIONS)), folder / COMPLETIONS_FILE.format(step=0))
    ids = torch.tensor([token for row in rows for token in row["token_ids"]], dtype=torch.long)
    coefficients = torch.tensor([c for row in rows for c in row["coefficients"]])
    types.add(ids.numpy(), coefficients.numpy(), advantages.numpy())
    write_atomically(serialize(types.table(texts)), folder / TOKEN_TYPES_FILE)


def main(args: Sequence[str] | None = None) -> None:
    args = parse_args(args)
    if (args.output / "trainer_state.json").exists() or list(args.output.glob("checkpoint-*")):
        sys.exit(f"--output {args.output} is the folder of a training run, whose records would be mixed with these")
    rows = read_rows(args.data)
    add_advantages(rows)
    if not any(row["advantage"] for row in rows):
        sys.exit(f"{args.data}: no prompt has completions with different rewards, so there is nothing to contrast")
    try:
        tokenizer = AutoTokenizer.from_pretrained(args.model)
        model = AutoModelForCausalLM.from_pretrained(args.model, dtype=args.dtype).to(args.device).eval()
    except (OSError, ValueError) as error:
        sys.exit(f"--model {args.model} cannot be loaded: {error}")
    try:
        add_tokens(rows, tokenizer)
    except Exception as error:  # what tokenizers and chat templates raise has no common type
        sys.exit(f"{args.data}: the model's tokenizer cannot read a prompt or completion: {error}")
    if not any(row["token_ids"] for row in rows):
        sys.exit(f"{args.data}: all completions are empty")
    advantages = add_credit(rows, model, args)
    vocab_size = max(len(tokenizer), model.config.get_text_config().vocab_size)
    write_records(rows, advantages, tokenizer, vocab_size, args.output / FOLDER)
    try:
        print(write_report([args.output], args.output / "report.html", min_count=args.min_count))
    except RecipeError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
