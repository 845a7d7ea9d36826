"""
`delta-trl audit`: does a rule of token credit find the tokens that decided the answer? It scores completions whose
decisive tokens are labelled, and reports how high each rule ranks these.
"""
