/**
 * The limits of regular users' builds with each version of control groups and each cgroup driver of the engine. A host
 * has only one combination, and few hosts that run tests have systemd, so each is tested in an emulated machine, with
 * SVC_LONG=1.
 */
import { fileURLToPath } from "node:url";
import test from "ava";
import { bundledProgram } from "../../support/bundled-program.ts";
import { whyNoDocker } from "../../support/docker.ts";
import { runEmulated, whyNoEmulator } from "../../support/emulated-machine.ts";

const guest = fileURLToPath(new URL("../../e2e/support/user-builds-guest.ts", import.meta.url));
const whyNot =
  process.env["SVC_LONG"] === undefined ? "takes minutes: SVC_LONG=1" : (whyNoEmulator ?? whyNoDocker);
const skipped = whyNot === undefined ? "" : ` (skipped: ${whyNot})`;
const longTest = whyNot === undefined ? test.serial : test.skip;
const timeoutMs = 20 * 60_000;

interface Result {
  readonly driver: string;
  readonly version: string;
  readonly output: string;
}

async function buildInMachine(drivers: readonly string[], systemdArguments: string): Promise<Result[]> {
  const program = await bundledProgram(guest);
  const script = `${process.execPath} ${program} ${drivers.join(" ")} 2>&1\n`;
  const output = await runEmulated(script, {}, timeoutMs, systemdArguments);
  const results = [...output.matchAll(/^result: (.*)$/gm)].map(([, json = ""]) => JSON.parse(json) as Result);
  if (results.length !== drivers.length) throw new Error(output.slice(-3_000));
  return results;
}

longTest(`with cgroup v2, both drivers limit the builds of a user${skipped}`, async (t) => {
  t.timeout(timeoutMs + 60_000);
  const results = await buildInMachine(["systemd", "cgroupfs"], "systemd.unified_cgroup_hierarchy=1");
  t.deepEqual(
    results.map(({ driver, version }) => [driver, version]),
    [
      ["systemd", "2"],
      ["cgroupfs", "2"],
    ],
  );
  for (const { driver, output } of results) {
    t.regex(output, /^memory\.max: 268435456$/m, driver);
    t.regex(output, /^memory\.swap\.max: 0$/m, driver);
    t.regex(output, /^cpu\.max: 100000 100000$/m, driver);
    t.regex(output, /can't fork: Resource temporarily unavailable/, driver);
  }
});

longTest(`with cgroup v1, the systemd driver limits the builds of a user${skipped}`, async (t) => {
  t.timeout(timeoutMs + 60_000);
  const [result] = await buildInMachine(["systemd"], "systemd.unified_cgroup_hierarchy=0");
  t.like(result, { driver: "systemd", version: "1" });
  const { output = "" } = result ?? {};
  t.regex(output, /^memory\/memory\.limit_in_bytes: 268435456$/m);
  t.regex(output, /^memory\/memory\.memsw\.limit_in_bytes: 268435456$/m);
  t.regex(output, /^cpu\/cpu\.cfs_quota_us: 100000$/m);
  t.regex(output, /can't fork: Resource temporarily unavailable/);
});
