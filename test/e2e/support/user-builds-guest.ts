/**
 * Runs in an emulated machine: for each cgroup driver in its arguments, starts an engine and a regular user's build
 * that tries to exceed its process limit. Prints one line of JSON per driver.
 */
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import { stripVTControlCharacters } from "node:util";
import { userLimits } from "../../../src/daemon/user-limits.ts";
import { DiskMeter } from "../../../src/engine/disk-usage.ts";
import { createDockerEngine, type DockerEngine } from "../../../src/engine/engine.ts";
import { createUserHelpers } from "../../../src/run-as/user-helpers.ts";
import { defaultsOf } from "../../../src/lib/limit-table.ts";
import { UserBuilds } from "../../../src/runtimes/docker/user-builds.ts";
import { Systemd } from "../../../src/runtimes/systemd/systemd.ts";

const nobody = 65_534;
const engineTimeoutMs = 180_000;
const buildTimeoutMs = 300_000;
const baseDir = "/tmp/base";
const contextDir = "/tmp/context";
/** Files with limits of cgroup v2, then v1, below `/sys/fs/cgroup` of the build container. */
const limitFiles = [
  ...["memory.max", "memory.swap.max", "cpu.max"],
  ...["memory/memory.limit_in_bytes", "memory/memory.memsw.limit_in_bytes", "cpu/cpu.cfs_quota_us"],
];
const dockerfile = `FROM base
RUN cd /sys/fs/cgroup; for file in ${limitFiles.join(" ")}; do [ ! -e $file ] || echo "$file: $(cat $file)"; done
RUN n=0; while [ $n -lt 100 ]; do sleep 60 & n=$((n+1)); done
`;

async function startEngine(driver: string): Promise<DockerEngine> {
  const socket = `/run/${driver}.sock`;
  execFileSync("systemd-run", [
    ...[`--unit=engine-${driver}`, "--property=Delegate=yes", "--"],
    ...["dockerd", `--exec-opt=native.cgroupdriver=${driver}`, `--host=unix://${socket}`],
    ...[`--data-root=/tmp/${driver}`, `--exec-root=/run/${driver}`, `--pidfile=/run/${driver}.pid`],
    // The kernel of the machine lacks the modules for networks.
    ...["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"],
  ]);
  const engine = createDockerEngine({ socket, timeoutMs: engineTimeoutMs });
  const deadlineMs = performance.now() + engineTimeoutMs;
  for (;;) {
    try {
      await engine.apiVersion();
      return engine;
    } catch (error) {
      if (performance.now() > deadlineMs) throw error;
      await wait(500);
    }
  }
}

function tarOf(dir: string): NodeJS.ReadableStream {
  return spawn("tar", ["-c", "-C", dir, "."], { stdio: ["ignore", "pipe", "inherit"] }).stdout;
}

async function readAll(stream: NodeJS.ReadableStream): Promise<string> {
  let text = "";
  for await (const chunk of stream) text += String(chunk);
  return text;
}

/** The output of the build, which the engine sends in pieces with colors, and its error. */
function outputOf(messages: string): string {
  const pieces = messages.split("\r\n").filter(Boolean);
  const texts = pieces.map((piece) => JSON.parse(piece) as { stream?: string; error?: string });
  return stripVTControlCharacters(texts.map(({ stream, error }) => stream ?? error ?? "").join(""));
}

/** @returns the output of the build */
async function buildAsUser(engine: DockerEngine, systemd: Systemd): Promise<string> {
  const builds = new UserBuilds({
    ...{ engine, disk: new DiskMeter(engine), storeId: "test", network: "none" },
    networks: { ensureForBuilds: () => Promise.reject(new Error("builds have no network here")) },
    limits: {
      ...defaultsOf(userLimits),
      ...{ maxBuildProcesses: 64, maxBuildMemoryBytes: 2 ** 28, maxBuildCpus: 1 },
    },
    limitSlice: (slice, properties) => systemd.limitSlice(slice, properties),
    log: {
      warn: (details: object, message: string) => {
        console.log(message, details);
      },
    },
  });
  const signal = AbortSignal.timeout(buildTimeoutMs);
  await using bounds = await builds.enter({ id: "app", ownerUid: nobody }, signal);
  return await engine.operate(
    "build",
    async (docker) =>
      outputOf(await readAll(await docker.buildImage(tarOf(contextDir), { ...bounds.options, t: "built" }))),
    { timeoutMs: buildTimeoutMs },
  );
}

mkdirSync(`${baseDir}/bin`, { recursive: true });
writeFileSync(`${baseDir}/bin/busybox`, readFileSync("/bin/busybox"), { mode: 0o755 });
execFileSync("chroot", [baseDir, "/bin/busybox", "--install", "-s", "/bin"]);
mkdirSync(contextDir);
writeFileSync(`${contextDir}/Dockerfile`, dockerfile);
await using userHelpers = createUserHelpers({ idleMs: 2 * buildTimeoutMs });
// A process on an emulated CPU may take longer to start than the helper's deadline.
const own = await userHelpers.as(userHelpers.selfUid);
for (let attempt = 0; attempt < 10; attempt++) {
  if (await own.runCommand(["true"], {}).then(Boolean, () => false)) break;
}
for (const driver of process.argv.slice(2)) {
  await using engine = await startEngine(driver);
  await engine.operate(
    "import an image",
    async (docker) => readAll(await docker.importImage(tarOf(baseDir), { repo: "base" })),
    { timeoutMs: buildTimeoutMs },
  );
  const info = (await engine.call("describe itself", (docker) => docker.info())) as Record<string, unknown>;
  const output = await buildAsUser(engine, new Systemd(userHelpers)).catch(String);
  const { CgroupDriver: seenDriver, CgroupVersion: version } = info;
  console.log(`\nresult: ${JSON.stringify({ driver: seenDriver, version, output })}`);
  execFileSync("systemctl", ["stop", `engine-${driver}`]);
}
