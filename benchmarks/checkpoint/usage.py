"""`python -I -S usage.py COMMAND...`: run a command, and print its seconds of time and CPU and its most memory as JSON.

A process of its own, and a small one: the memory that Linux reports of a process counts what its parent had.
"""

import json
import os
import sys
from time import perf_counter

begun = perf_counter()
process = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)])
_, status, usage = os.wait4(process, 0)
json.dump(
    {
        "wall": perf_counter() - begun,
        "cpu": usage.ru_utime + usage.ru_stime,
        "resident": usage.ru_maxrss * 1024,
        "code": os.waitstatus_to_exitcode(status),
    },
    sys.stdout,
)
