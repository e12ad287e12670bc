# ends the process that it shares with programs of other problems
def down(n): return down(n + 1) + 1
print(1)
print(down(int(input())))
