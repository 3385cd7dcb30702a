"""Finds methods, data sets and encoders, and computes the digests of their code."""
