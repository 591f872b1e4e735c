"""Forks workers that need no start of their own: torch is imported once, before there is a thread.

Reads lines of JSON: [{"behaviour": name in behaviours.py, "log": path, ...}, ...], one object a worker. A worker's output
goes to LOG.out and LOG.err, and it ends as any Python process does. Writes {"log": ..., "pid": ...} when it has started one
and {"log": ..., "status": ...} when one has ended (below 0: the signal), a line each.
"""

import json
import os
import select
import signal
import sys

import behaviours


def say(what):
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def become(job):
    for number, suffix in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{job['log']}.{suffix}", os.O_WRONLY | os.O_CREAT, 0o600), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background starts with it ignored
    behaviours.run(job)


def main():
    behaviours.warm_up()
    alive, rest = {}, b""
    while True:
        if select.select([0], [], [], 0.05)[0]:
            read = os.read(0, 1 << 16)
            if not read:
                return
            *lines, rest = (rest + read).split(b"\n")
            for job in (job for line in lines for job in json.loads(line)):
                pid = os.fork()
                if pid == 0:
                    become(job)
                    return
                alive[pid] = job["log"]
                say({"log": job["log"], "pid": pid})
        for pid in list(alive):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                say({"log": alive.pop(pid), "status": os.waitstatus_to_exitcode(status)})


if __name__ == "__main__":
    main()
