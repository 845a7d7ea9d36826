"""The files in which a run keeps its token credit: the trainer writes them, the report reads them."""

import pyarrow as pa


FOLDER = "token_credit"  # under `output_dir`
COMPLETIONS_FILE = "token_credit_{step:05d}.parquet"  # one for every recorded rollout batch, like TRL's completions

# One row per completion. Lists run over the tokens that the loss counts.
COMPLETIONS = pa.schema(
    [
        ("step", pa.int64()),  # optimiser steps done when the completion was sampled
        ("prompt_index", pa.int64()),  # of the group, within the rollout batch over all ranks
        ("prompt", pa.string()),  # as the policy saw it, without special tokens
        ("completion", pa.string()),  # whole, with the output of tools, without special tokens
        ("reward", pa.float32()),  # weighted sum of the reward functions
        ("rewards", pa.map_(pa.string(), pa.float32())),  # by reward function, null where not scorable
        ("advantage", pa.float32()),
        ("token_ids", pa.list_(pa.int32())),
        # join to the text of the ids; the last of several tokens of a character has it
        ("tokens", pa.list_(pa.string())),
        ("coefficients", pa.list_(pa.float32())),
        ("log_probs", pa.list_(pa.float32())),  # null if the run did not compute them
        ("entropies", pa.list_(pa.float32())),  # null if the run did not compute them
    ]
)
