"""`delta-trl audit`: does a rule of token credit find the tokens that matter, and does it point the right way?"""
