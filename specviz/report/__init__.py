"""What is derived from a trace: metrics, charts, tables, pages, and tests of equality."""
