"""Faults that are made on purpose: cheats, crashes, hangs, damaged files."""
