"""S1: reads one file, writes one summary of at most 2 KiB."""

import csv

totals = {}
with open("/in/sales.csv", encoding="utf-8", newline="") as source:
    for row in csv.DictReader(source):
        count, amount = totals.get(row["region"], (0, 0))
        totals[row["region"]] = (count + 1, amount + int(row["amount"]))
with open("/out/summary.csv", "w", encoding="utf-8") as target:
    target.write("region,rows,amount\n")
    for region in sorted(totals):
        target.write(f"{region},{totals[region][0]},{totals[region][1]}\n")
