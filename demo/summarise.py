"""Summarise Texas housing sales by city.

This is the workload of the demo. nsbox treats it as untrusted: nothing here is
part of nsbox, and nothing here is believed. It reads /in/txhousing.csv and
writes /out/summary.csv.

Cells are read as the answer file txhousing-by-city.csv was made, by sqlite3's
CAST AS INTEGER: the digits at the start of the cell, 0 if there are none. A
cell such as 1.6e+07 therefore counts as 1. That is the answer file's reading,
not the true value; what it leaves out is printed at the end.
"""

import csv
from decimal import Decimal
from itertools import takewhile


def whole(cell):
    return int("".join(takewhile(str.isdigit, cell)) or 0)


def field(text):
    """Quote like sqlite3's csv mode, which puts a name with a space in quotes."""
    plain = text and all(c.isalnum() or c in "-_." for c in text)
    return text if plain else '"' + text.replace('"', '""') + '"'


totals = {}
rows = odd_cells = 0
left_out = Decimal(0)
with open("/in/txhousing.csv", encoding="utf-8", newline="") as source:
    for row in csv.DictReader(source):
        months, sales, volume = totals.get(row["city"], (0, 0, 0))
        totals[row["city"]] = (months + 1, sales + whole(row["sales"]), volume + whole(row["volume"]))
        rows += 1
        gap = Decimal(row["volume"] or 0) - whole(row["volume"])
        odd_cells += gap != 0
        left_out += gap

with open("/out/summary.csv", "w", encoding="utf-8", newline="") as target:
    target.write("city,months,sales,volume\n")
    for city in sorted(totals):
        months, sales, volume = totals[city]
        target.write(f"{field(city)},{months},{sales},{volume}\n")

print(f"{rows} rows, {len(totals)} cities, {sum(t[1] for t in totals.values())} sales")
print(f"{sum(t[2] for t in totals.values())} dollars, largest: {max(totals, key=lambda c: totals[c][2])}")
print(f"{odd_cells} cells such as 1.6e+07 counted by their first digits, as in the answer file: {int(left_out)} dollars not counted")
