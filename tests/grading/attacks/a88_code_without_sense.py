# runs bytecode that no compiler makes, which reads and writes beyond the frame
import random
def victim(a=1, b=2):
    c = [a, b]
    return c
for seed in range(300):
    draw = random.Random(seed)
    code = bytes([151, 0] + [draw.randrange(256) for _ in range(40)] + [83, 0])
    victim.__code__ = victim.__code__.replace(co_code=code, co_stacksize=draw.randrange(4), co_consts=(1,))
    try: victim()
    except Exception: pass
