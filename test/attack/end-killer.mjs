// Kills the helper processes that stop an app for its owner. argv: the app's run directory, the daemon's PID, how many
// helpers to kill.
import { readFileSync, readdirSync, readlinkSync } from "node:fs";

const [, , runDir = "", daemonPid = "", helpers = ""] = process.argv;
let helpersLeft = Number(helpers);
const killed = new Set();
process.stdout.write("ready\n");
for (;;) {
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name) && !killed.has(name))) {
    try {
      const command = readFileSync(`/proc/${pid}/cmdline`, "utf8");
      const isSweep = command.endsWith("\0sweep\0") && readlinkSync(`/proc/${pid}/cwd`) === runDir;
      const parent = /^PPid:\t(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
      const isHelper = helpersLeft > 0 && parent === daemonPid;
      if (!isSweep && !isHelper) continue;
      process.kill(Number(pid), "SIGKILL");
      killed.add(pid);
      if (isHelper) helpersLeft--;
      process.stdout.write(isSweep ? "killed a sweep\n" : "killed a helper\n");
    } catch {
      // The process has ended, or belongs to another user.
    }
  }
}
