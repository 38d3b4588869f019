/** Names of processes in lists. */
import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import test from "ava";
import { ProcessScan } from "../../src/host/processes/process-scan.ts";
import { nextEvent } from "../support/eventually.ts";
import { ProcessMemo } from "../../src/host/processes/process-memo.ts";

const known = { runs: [], controlGroups: new Map() };

test("a Node process has the name of its program, whatever Node calls its threads", async (t) => {
  const child = spawn(process.execPath, ["-e", "console.log(0); setInterval(() => 0, 1e6)"], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  t.teardown(() => child.kill("SIGKILL"));
  await nextEvent(child.stdout, "data");
  const { pid = 0 } = child;
  t.log(await readFile(`/proc/${pid}/comm`, "utf8"));
  const scan = new ProcessScan();
  t.is(scan.owners([pid], known).get(pid)?.name, "node");
  t.is(scan.processes(known).find((process) => process.pid === pid)?.name, "node");
});

test("others have the kernel's name", async (t) => {
  const child = spawn("/bin/sh", ["-c", "echo 0; read line"], { stdio: ["pipe", "pipe", "ignore"] });
  t.teardown(() => child.kill("SIGKILL"));
  await nextEvent(child.stdout, "data");
  const { pid = 0 } = child;
  const comm = (await readFile(`/proc/${pid}/comm`, "utf8")).trim();
  t.is(new ProcessScan().owners([pid], known).get(pid)?.name, comm);
});

test("a process's cached data is valid for its stated time, and never for another process with its PID", (t) => {
  const memo = new ProcessMemo<string>();
  let reads = 0;
  const get = (startTicks: number, forMs: number): string =>
    memo.get({ pid: 7, startTicks }, () => ({ value: `${startTicks} ${(reads += 1)}`, forMs }));
  t.is(get(1, 0), "1 1");
  t.is(get(1, Infinity), "1 2");
  t.is(get(1, Infinity), "1 2");
  t.is(get(2, Infinity), "2 3");
  memo.retain(new Set([7]));
  t.is(get(2, Infinity), "2 3");
  memo.retain(new Set([8]));
  t.is(get(2, Infinity), "2 4");
});
