/** What processes are called in lists. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import test from "ava";
import { ProcessScan } from "../../src/host/process-scan.ts";

const known = { runs: [], controlGroups: new Map() };

test("a process of Node's is called as its program, whatever Node calls its threads", async (t) => {
  const child = spawn(process.execPath, ["-e", "console.log(0); setInterval(() => 0, 1e6)"], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  t.teardown(() => child.kill("SIGKILL"));
  await once(child.stdout, "data");
  const { pid = 0 } = child;
  t.log(await readFile(`/proc/${pid}/comm`, "utf8"));
  const scan = new ProcessScan();
  t.is(scan.owners([pid], known).get(pid)?.name, "node");
  t.is(scan.processes(known).find((process) => process.pid === pid)?.name, "node");
});

test("others are called as the kernel says", async (t) => {
  const child = spawn("/bin/sh", ["-c", "echo 0; read line"], { stdio: ["pipe", "pipe", "ignore"] });
  t.teardown(() => child.kill("SIGKILL"));
  await once(child.stdout, "data");
  const { pid = 0 } = child;
  const comm = (await readFile(`/proc/${pid}/comm`, "utf8")).trim();
  t.is(new ProcessScan().owners([pid], known).get(pid)?.name, comm);
});
