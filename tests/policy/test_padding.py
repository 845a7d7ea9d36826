"""The parts of trimmed padding: every row and every token is scored, rows stay whole and within their step."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_trl.policy.padding import order_by_length, pieces, used


masks = st.integers(1, 9).flatmap(
    lambda T: st.lists(st.integers(0, T), min_size=1, max_size=12).map(
        lambda lengths: (torch.arange(T) < torch.tensor(lengths)[:, None]).long()
    )
)


@given(masks, st.integers(1, 5), st.integers(1, 4), st.integers(1, 6))
@settings(deadline=None)
def test_pieces_hold_every_row_and_every_token(mask, size, multiple, prompt):
    order = order_by_length(used(mask), torch.randperm(len(mask)), size, 2)
    seen, widths = [], []
    for rows, width in pieces(mask, order, size, multiple, prompt):
        assert len(rows) <= size
        assert mask[rows, :width].sum() == mask[rows].sum()
        assert 1 <= width == mask.size(1) or (prompt + width) % multiple == 0
        widths.append(width)
        seen += rows.tolist()
    assert sorted(seen) == list(range(len(mask)))
    assert widths == sorted(widths, reverse=True)  # the first one says how much memory a forward takes


@given(st.lists(st.integers(0, 9), min_size=12, max_size=12), st.sampled_from([1, 2, 3, 6]))
def test_rows_are_exchanged_within_a_step(lengths, per_step):
    before, lengths = torch.randperm(12), torch.tensor(lengths)
    order = order_by_length(lengths, before, 2, per_step)
    for old, new in zip(before.split(2 * per_step), order.split(2 * per_step), strict=True):
        assert set(new.tolist()) == set(old.tolist())
        if per_step > 1:
            with_tokens = [length for length in lengths[new].tolist() if length]
            assert with_tokens == sorted(with_tokens, reverse=True)
            empty = [int((lengths[rows] == 0).sum()) for rows in new.split(2)]
            assert max(empty) - min(empty) <= 1
