# leaves cycles and a large output without an end of line for those that come after
n = int(input())
rings = []
for i in range(20000):
    ring = [i]
    ring.append(ring)
    rings.append(ring)
print("OUTPUT" * (n * 50000), end="")
