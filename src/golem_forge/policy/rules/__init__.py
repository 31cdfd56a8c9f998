"""Rules: what a person has decided once, so that nobody asks again, or never lets through.

Everything is loaded when first used: a session without rules files pays for none of the parsing.
"""
