"""
Computes the log-probabilities of completions, as TRL's trainer does but without running its padding. The same pass
records what rules of token credit need: entropies and final hidden states.
"""
