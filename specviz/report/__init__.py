"""What is derived from a trace: metrics, charts, tables, pages, and the equivalence test."""
