"""``fedstein bench``: how fast it is, beside peers and beside what the machine can do. Ratios, measured in one process.

``steps`` one SVGD step; ``rounds`` whole rounds by phase; ``growth`` how cost grows with K, N and d; ``startup``
import, compilation and memory. Each gives rows for the tables; ``goals`` reads them.
"""
