"""What a plugin may try: to read labels, to change files of others, to mislead its judge.

One module for each mechanism. Functions that are called `from_…` and `by_…` return what they found of the
labels, or raise; `from_…` return it as scores, so that the method of cheats.py can hand them in. The others
change something. catalogue.py lists them, with what is expected.
"""
