/** Limits of builds and services, each in an emulated machine. */
import { readFile } from "node:fs/promises";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import { bundledProgram } from "../../support/bundled-program.ts";
import { whyNoDocker } from "../../support/docker.ts";
import { runEmulated, whyNoEmulator } from "../../support/emulated-machine.ts";
import { main } from "../../support/svc-main.ts";

// The limits of regular users' builds with each version of control groups and each cgroup driver of the engine. A host
// has only one combination, and few hosts that run tests have systemd, so each is tested in an emulated machine, with
// SVC_LONG=1.

const guest = fileURLToPath(new URL("../../e2e/support/user-builds-guest.ts", import.meta.url));
const whyNoBuilds =
  process.env["SVC_LONG"] === undefined ? "takes minutes: SVC_LONG=1" : (whyNoEmulator ?? whyNoDocker);
const skippedBuilds = whyNoBuilds === undefined ? "" : ` (skipped: ${whyNoBuilds})`;
const longTest = whyNoBuilds === undefined ? test.serial : test.skip;
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

longTest(`with cgroup v2, both drivers limit the builds of a user${skippedBuilds}`, async (t) => {
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

longTest(`with cgroup v1, the systemd driver limits the builds of a user${skippedBuilds}`, async (t) => {
  t.timeout(timeoutMs + 60_000);
  const [result] = await buildInMachine(["systemd"], "systemd.unified_cgroup_hierarchy=0");
  t.like(result, { driver: "systemd", version: "1" });
  const { output = "" } = result ?? {};
  t.regex(output, /^memory\/memory\.limit_in_bytes: 268435456$/m);
  t.regex(output, /^memory\/memory\.memsw\.limit_in_bytes: 268435456$/m);
  t.regex(output, /^cpu\/cpu\.cfs_quota_us: 100000$/m);
  t.regex(output, /can't fork: Resource temporarily unavailable/);
});

// The limits of a service take effect. systemd needs the cgroup controllers for it, which hosts that run tests mostly
// use otherwise, so this runs in an emulated machine, with SVC_LONG=1.

const unit = fileURLToPath(new URL("../../../packaging/svc.service", import.meta.url));
const whyNoServices = process.env["SVC_LONG"] === undefined ? "takes minutes: SVC_LONG=1" : whyNoEmulator;

function manifest(id: string, exec: string): string {
  return `id: ${id}
name: A service with limits
version: "1.0.0"
service: { exec: ${exec} }
limits: { memory: 64MiB, cpus: 0.25 }
restart: { policy: never }
`;
}

/** Prints lines with the kernel's counters, each after its name. */
const script = `
svc() { ${process.execPath} ${main} "$@"; }
for n in $(seq 300); do [ -S /run/svc/root/svc.sock ] && break; sleep 1; done
svc install /etc/svc/burner > /dev/null; svc install /etc/svc/eater > /dev/null
svc start burner > /dev/null
group=/sys/fs/cgroup$(systemctl show --property=ControlGroup --value svc-burner)
echo "limits: $(cat $group/memory.max $group/cpu.max | tr '\\n' ' ')"
used() { sed -n 's/^usage_usec //p' $group/cpu.stat; }
before=$(used); began=$(cut -d' ' -f1 /proc/uptime); sleep 20; after=$(used); ended=$(cut -d' ' -f1 /proc/uptime)
echo "used: $before $after $began $ended"
echo "throttled: $(sed -n 's/^nr_throttled //p' $group/cpu.stat)"
svc stop burner > /dev/null
svc start eater 2>&1 | sed 's/^/started: /'
for n in $(seq 60); do [ "$(systemctl show --property=Result --value svc-eater)" = success ] || break; sleep 1; done
svc info eater --json | tr -d '\\n' | sed 's/^/eater: /'; echo
svc status --json | tr -d '\\n' | sed 's/^/status: /'; echo
`;

(whyNoServices === undefined ? test : test.skip)(
  `memory and processor time of a service end where its limits say${whyNoServices === undefined ? "" : ` (skipped: ${whyNoServices})`}`,
  async (t) => {
    t.timeout(timeoutMs + 60_000);
    const said = await runEmulated(
      script,
      {
        "etc/systemd/system/svc.service": await readFile(unit, "utf8"),
        "etc/systemd/system/svc.service.d/sources.conf": `[Service]\nExecStart=\nExecStart=${process.execPath} ${main} daemon\n`,
        "etc/svc/svc.toml": `[apps]\npath = ["${dirname(process.execPath)}", "/usr/bin", "/bin"]\n`,
        "etc/svc/burner/svc.yaml": manifest("burner", `[sh, -c, "while :; do :; done"]`),
        // It buffers everything as long as no line ends.
        "etc/svc/eater/svc.yaml": manifest("eater", `[sh, -c, "sleep 5; exec tail /dev/zero"]`),
      },
      timeoutMs,
    );
    const line = (name: string): string => new RegExp(`^${name}: (.*)$`, "m").exec(said)?.[1]?.trim() ?? "";
    t.log(said.slice(-3_000));
    t.is(line("limits"), `${64 * 1024 * 1024} 25000 100000`);
    const [before = 0, after = 0, began = 0, ended = 0] = line("used").split(" ").map(Number);
    const share = (after - before) / 1e6 / (ended - began);
    t.true(share > 0.1 && share < 0.3, `it used ${share} of a CPU`);
    t.true(Number(line("throttled")) > 10);
    const { state, state_reason: stateReason } = JSON.parse(line("eater")) as Record<string, string>;
    t.is(state, "CRASHED");
    t.regex(stateReason ?? "", /^it ran out of memory/);
  },
);
