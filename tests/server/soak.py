#!/usr/bin/env python3
"""Asks a server of its own for a long time, as many kinds of clients at once, and tells whether anything failed or grew.

  tests/server/soak.py                  20 minutes, 12 clients; FATHOM_PROGRAM or build/release/fathom
  tests/server/soak.py --minutes 2 --json soak.json

Exit code 1: a request failed, memory grew, descriptors or threads did not come back, or the server did not end with 0.
The warm-up asks with twice as many clients, so that every buffer and cache has had its size. Memory counts as flat when its
growth afterwards, by the slope's 95 % interval, may be none or is below 1 % of it."""
import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from running_server import PROGRAM, Server  # noqa: E402
from soak_load import KINDS, Client  # noqa: E402

BLOCK = 20  # seconds whose mean is one point of the line: neighbouring samples are not independent


class Tally:
    def __init__(self):
        self.lock = threading.Lock()
        self.count, self.seconds, self.slowest = Counter(), Counter(), Counter()
        self.errors, self.first = Counter(), {}

    def add(self, kind, seconds, failure):
        with self.lock:
            self.count[kind] += 1
            self.seconds[kind] += seconds
            self.slowest[kind] = max(self.slowest[kind], seconds)
            if failure:
                self.errors[kind] += 1
                self.first.setdefault(kind, failure)


def work(port, seed, over, tally):
    chance = random.Random(seed)
    client = Client(port, chance)
    kinds, weights = list(KINDS), list(KINDS.values())
    while not over.is_set():
        kind = chance.choices(kinds, weights)[0]
        begun, failure = time.monotonic(), None
        try:
            kind(client)
        except Exception as error:  # whatever it is, it is counted and the load goes on
            failure = f"{type(error).__name__}: {error}"
            client.connection.close()
        tally.add(kind.__name__, time.monotonic() - begun, failure)
    client.connection.close()


def line_through(points):
    """Slope a minute of (seconds, value) and half the width of its 95 % interval."""
    n = len(points)
    if n < 3:
        return 0.0, math.inf
    x0, y0 = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    spread = sum((x - x0) ** 2 for x, _ in points)
    slope = sum((x - x0) * (y - y0) for x, y in points) / spread
    rest = sum((y - y0 - slope * (x - x0)) ** 2 for x, y in points)
    t = 1.96 + 2.5 / (n - 2) + 3 / (n - 2) ** 2  # Student's 97.5 % to within 1 % from 4 degrees of freedom on
    return 60 * slope, 60 * t * math.sqrt(rest / (n - 2) / spread)


def blocks(samples, name, begin):
    found = {}
    for s in samples:
        if s["seconds"] >= begin:
            found.setdefault(int((s["seconds"] - begin) // BLOCK), []).append(s)
    return [(sum(s["seconds"] for s in b) / len(b), sum(s[name] for s in b) / len(b)) for b in found.values() if len(b) >= BLOCK / 2]


def sample(server, seconds):
    return {"seconds": round(seconds, 1), "resident_kib": server.resident_kib(), "descriptors": server.descriptors(), "threads": server.threads()}


def run(options):
    server = Server("--context", "2048", "--response-store", "memory", "--response-store-size", "1MiB", "--log-level", "warn")
    first = Client(server.port, random.Random(0))
    for kind in KINDS:
        kind(first)
    first.connection.close()
    time.sleep(1)
    idle = sample(server, 0)
    over, warm, tally = threading.Event(), threading.Event(), Tally()
    clients = [threading.Thread(target=work, args=(server.port, options.seed + n, over if n < options.clients else warm, tally))
               for n in range(2 * options.clients)]
    samples, begun, begin = [], time.monotonic(), 60 * options.minutes * options.warm_up
    for client in clients:
        client.start()
    live, shown, died, reloads = sys.stderr.isatty(), 0.0, False, 0
    while (now := time.monotonic() - begun) < 60 * options.minutes:
        time.sleep(min(1, max(60 * options.minutes - now, 0)))
        if server.process.poll() is not None:
            died = True
            break
        now = time.monotonic() - begun
        samples.append(sample(server, now))
        if now >= begin:
            warm.set()
        if now // 60 > reloads:  # an operator who reloads keys every minute
            reloads += 1
            server.process.send_signal(signal.SIGHUP)
        if live or now - shown >= 30:
            shown, last = now, samples[-1]
            text = (f"{now / 60:5.1f} of {options.minutes:g} min  {sum(tally.count.values()):7,} requests  {sum(tally.errors.values())} errors  "
                    f"{last['resident_kib'] / 1024:6.1f} MiB  {last['descriptors']:3} descriptors  {last['threads']:2} threads")
            print(("\r" if live else "") + text, end="" if live else "\n", file=sys.stderr, flush=True)
    if live:
        print(file=sys.stderr)
    over.set()
    warm.set()
    for client in clients:
        client.join()
    result = {"minutes": options.minutes, "clients": options.clients, "seed": options.seed,
              "server": subprocess.run([PROGRAM, "--version"], capture_output=True, text=True).stdout.split("\n")[0]}
    result["requests"] = {k: {"count": tally.count[k], "errors": tally.errors[k], "mean_ms": round(1000 * tally.seconds[k] / tally.count[k], 1),
                              "slowest_ms": round(1000 * tally.slowest[k], 1)} for k in sorted(tally.count)}
    result["count"], result["errors"] = sum(tally.count.values()), sum(tally.errors.values())
    result["first_errors"] = tally.first
    slope, half = line_through(blocks(samples, "resident_kib", begin))
    after = [s["resident_kib"] for s in samples if s["seconds"] >= begin] or [0]
    grown = slope * options.minutes * (1 - options.warm_up)
    flat = slope - half <= 0 or grown < 0.01 * after[0]
    result["resident"] = {"idle_before_kib": idle["resident_kib"], "first_kib": after[0], "mean_kib": round(sum(after) / len(after)), "most_kib": max(after),
                          "warm_up_minutes": round(begin / 60, 2), "slope_kib_a_minute": round(slope, 2), "slope_95_half_width": round(half, 2), "flat": flat}
    if not died:
        time.sleep(3)
        rest = sample(server, 0)
        result["resident"]["idle_after_kib"] = rest["resident_kib"]
        for name in ("descriptors", "threads"):
            result[name] = {"idle_before": idle[name], "most": max(s[name] for s in samples), "idle_after": rest[name]}
        result["processor_seconds"] = round(server.processor_seconds(), 1)
        text = server.get("/metrics").body.decode()
        result["metrics"] = {name: sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))
                             for name in ("fathom_server_requests_total", "fathom_server_clients_gone", "fathom_engine_preemptions_total",
                                          "fathom_server_slow_readers_cut", "fathom_server_store_failures", "fathom_server_open_requests")}
    log = server.log()
    result["log_lines"] = {level: log.count(f"level={level}") for level in ("warn", "error")}
    result["exit_code"] = server.end()
    result["samples"] = samples[::10]
    result["passed"] = (not died and result["errors"] == 0 and flat and result["exit_code"] == 0 and
                        all(result[n]["idle_after"] <= result[n]["idle_before"] for n in ("descriptors", "threads")) and
                        result["metrics"]["fathom_server_open_requests"] == 0)
    return result


def table(r):
    lines = [f"{'kind':<20} {'requests':>9} {'errors':>7} {'mean ms':>9} {'slowest':>9}"]
    for kind, one in r["requests"].items():
        lines.append(f"{kind:<20} {one['count']:>9,} {one['errors']:>7} {one['mean_ms']:>9.1f} {one['slowest_ms']:>9.1f}")
    lines.append(f"{'all':<20} {r['count']:>9,} {r['errors']:>7}")
    m = r["resident"]
    lines.append(f"\nresident   {m['first_kib'] / 1024:.1f} MiB after {m['warm_up_minutes']:g} min, mean {m['mean_kib'] / 1024:.1f}, most {m['most_kib'] / 1024:.1f}; "
                 f"{m['slope_kib_a_minute']:+.1f} ± {m['slope_95_half_width']:.1f} KiB a minute: {'flat' if m['flat'] else 'GROWS'}")
    for name in ("descriptors", "threads"):
        if name in r:
            lines.append(f"{name:<10} {r[name]['idle_before']} idle before, at most {r[name]['most']}, {r[name]['idle_after']} idle after")
    lines.append(f"log        {r['log_lines']['warn']} warnings, {r['log_lines']['error']} errors; exit code {r['exit_code']}")
    lines += [f"first error of {kind}: {text}" for kind, text in r["first_errors"].items()]
    return "\n".join([*lines, "", "soak: " + ("passed" if r["passed"] else "FAILED")])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--clients", type=int, default=12, help="that ask at once (default: 12)")
    parser.add_argument("--warm-up", type=float, default=0.3, help="share of the time before memory is judged (default: 0.3)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", metavar="FILE", help="write everything, with a sample each 10 s")
    options = parser.parse_args()
    result = run(options)
    print(table(result))
    if options.json:
        with open(options.json, "w") as file:
            file.write(json.dumps(result, indent=1) + "\n")
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
