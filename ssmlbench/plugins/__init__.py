"""Finds methods, data sets and encoders, and tells one version of a plugin's code from another."""
