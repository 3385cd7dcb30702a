"""Analyses of finished runs: why a method wins. One module each; they read results, never torch.

A module in this folder with a subclass of `Analysis` is an analysis: `table` finds it, and
`ssmlbench analyse NAME`, its options and the report follow from the class.
"""
