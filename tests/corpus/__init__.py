"""Data that tests and scripts share: labelled answers, attacks, right programs, tiny models. Imports no test."""
