"""`delta-trl audit`: does a rule of token credit find the tokens that decided the answer?"""
