"""Parsers against files that nobody meant: `make fuzz`, and a short form in the default tests."""
