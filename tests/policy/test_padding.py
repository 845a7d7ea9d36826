"""The parts of trimmed padding: every row and every token is scored, rows stay whole and within their step."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_trl.policy.padding import Trim, micro_batches, pieces, regrouped, used


masks = st.integers(1, 9).flatmap(
    lambda T: st.lists(st.integers(0, T), min_size=1, max_size=12).map(
        lambda lengths: (torch.arange(T) < torch.tensor(lengths)[:, None]).long()
    )
)


@given(masks, masks, st.integers(1, 5), st.booleans(), st.integers(1, 4))
@settings(deadline=None)
def test_pieces_hold_every_row_and_every_token(mask, prompts, size, trim_prompts, multiple):
    prompts = prompts[torch.arange(len(mask)) % len(prompts)].flip(1)
    together = micro_batches(used(mask), torch.randperm(len(mask)), size, 2)
    seen, widths = [], []
    for rows, first, width in pieces(prompts, mask, together, Trim(trim_prompts, multiple)):
        assert len(rows) <= size
        assert mask[rows, :width].sum() == mask[rows].sum()
        assert prompts[rows, first:].sum() == prompts[rows].sum()
        assert width == mask.size(1) or width % multiple == 0
        assert 1 <= width
        assert first < prompts.size(1)
        assert trim_prompts or first == 0
        widths.append(width - first)
        seen += rows.tolist()
    assert sorted(seen) == list(range(len(mask)))
    assert widths == sorted(widths, reverse=True)  # the first one says how much memory a forward takes
    whole = pieces(prompts, mask, together, Trim(True, multiple, limit=mask.size(1) + prompts.size(1) - 1))
    assert all((first, width) == (0, mask.size(1)) for _, first, width in whole)


@given(st.lists(st.integers(0, 9), min_size=12, max_size=12), st.sampled_from([1, 2, 3, 6]))
def test_rows_are_exchanged_within_a_step(lengths, per_step):
    order = torch.randperm(12)
    lengths = torch.tensor(lengths)
    together = micro_batches(lengths, order, 2, per_step)
    assert [len(rows) for rows in together] == [2] * 6
    for i in range(0, 6, per_step):
        step = torch.cat(together[i : i + per_step])
        assert set(step.tolist()) == set(order[2 * i : 2 * (i + per_step)].tolist())
        with_tokens = [length for length in lengths[step].tolist() if length]
        assert with_tokens == sorted(with_tokens, reverse=True)
        empty = [int((lengths[rows] == 0).sum()) for rows in together[i : i + per_step]]
        assert max(empty) - min(empty) <= 1


def test_regrouping_moves_whole_rows():
    shuffled = torch.randperm(12)
    rows = {"row": shuffled, "ten": 10 * shuffled[:, None], "count": torch.tensor(5)}
    batches = [{k: v[i : i + 2] if v.ndim else v for k, v in rows.items()} for i in range(0, 12, 2)]
    together = torch.randperm(12).split(2)
    for batch, chosen in zip(regrouped(batches, together, "row"), together, strict=True):
        assert torch.equal(batch["row"], chosen)
        assert torch.equal(batch["ten"], 10 * chosen[:, None])
        assert batch["count"] == 5
