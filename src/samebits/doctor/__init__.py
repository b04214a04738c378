"""What this machine and its frameworks can exchange, found by doing it: `frameworks` are rows, `trial` runs a cell in a
process of its own, `report` gathers cells and the machine's facts. Start at `report.examine`.
"""
