"""What tests and scripts both check with: labelled answers, attacks, right programs, tiny models. Imports no test."""
