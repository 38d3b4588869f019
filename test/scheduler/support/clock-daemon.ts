/**
 * A daemon in a child process with a controllable clock, which may be killed. Arguments: directory, initial time of its
 * clock. Reads milliseconds to advance, one per line; prints `ready`, and `passed` after each.
 */
import { join } from "node:path";
import { createInterface } from "node:readline";
import { parseConfig } from "../../../src/daemon/config.ts";
import { startDaemon } from "../../../src/daemon/daemon.ts";
import { sourcePages } from "../../../src/daemon/page-files.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { programs } from "../../support/programs.ts";

const [dir = "", start = ""] = process.argv.slice(2);
const selfUid = process.getuid?.() ?? 0;
const clock = new FakeClock(start);
const config = parseConfig(
  {
    api: { listen: "127.0.0.1:0", socket: join(dir, "svc.sock") },
    store: { dir: join(dir, "store") },
    system: { reboot_command: ["/bin/sh", "-c", `echo reboot >> ${join(dir, "reboots")}`] },
    log: { level: "silent" },
  },
  join(dir, "svc.toml"),
  { uid: selfUid, home: dir, env: {} },
);
const daemon = await startDaemon({
  config,
  reloadConfig: () => Promise.resolve(config),
  version: "0.0.0",
  programs,
  selfUid,
  pages: sourcePages(),
  clock,
});
process.once("SIGTERM", () => void daemon[Symbol.asyncDispose]().then(() => process.exit()));
createInterface({ input: process.stdin }).on("line", (line) => {
  clock.pass(Number(line));
  console.log("passed");
});
console.log("ready");
