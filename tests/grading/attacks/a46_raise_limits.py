# root may raise hard limits unless it gave up its capabilities
import resource
hit = []
for name in ("AS", "CPU", "FSIZE", "NOFILE"):
    kind = getattr(resource, "RLIMIT_" + name)
    soft, hard = resource.getrlimit(kind)
    if hard == resource.RLIM_INFINITY: hit.append(name + " unlimited"); continue
    try: resource.setrlimit(kind, (hard * 2, hard * 2)); hit.append(name)
    except (ValueError, OSError) as e: print(e)
if hit: print("PWNED", hit)
