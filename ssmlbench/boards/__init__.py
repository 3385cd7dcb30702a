"""Turns finished runs into boards: tables, statistics, the papers' numbers, the report. Free of torch."""
