"""From finished runs to boards: tables, statistics, the papers' numbers, the report. Free of torch."""
