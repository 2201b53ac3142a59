"""The benchmark ``fedstein bench``: speed relative to other libraries and to the bare matrix products, on one machine.

``steps`` measures one SVGD step, ``rounds`` whole rounds by phase, ``scaling`` the growth of the cost with K, N and d,
and ``startup`` import, compilation and memory. Each gives rows for the tables, and ``goals`` checks them.
"""
