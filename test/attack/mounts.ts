/** An owner who swaps the sources of a container's mounts while anyone restarts it. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { startEngine, whyNoDocker, type TestEngine } from "../support/docker.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import type { Finding } from "./scenario.ts";

const nobody = 65534;
const swapper = fileURLToPath(new URL("swapper.mjs", import.meta.url));

/** The number of repetitions in a short run. */
const slowed = { stoppedMs: 45, runsMs: 5 };

interface Victim {
  readonly runtime: string;
  readonly files: Readonly<Record<string, string>>;
  /** Parent directories of its mounts, relative to the app's directory. */
  readonly paths: readonly string[];
}

/** Prints its identity and whether one of its mounts is the host's root. */
const spy = (marker: string, mounts: readonly string[]): string =>
  `id -u; for m in ${mounts.join(" ")}; do test ! -e $m${marker} || echo stolen; done; exec sleep 3600`;

function victims(marker: string): Victim[] {
  const docker = (user: string): string => `id: victim
name: Victim
version: "1.0.0"
docker:
  image: svc/attack:1
  command: ["/bin/sh", "-c", "${spy(marker, ["/svc/repo", "/svc/data", "/srv/media"])}"]
  env: { R: "\${repo}", D: "\${data}" }${user}
volumes: [{ name: media, path: /srv/media }]
restart: { policy: always }
stop: { grace: 1s }
`;
  return [
    { runtime: "docker as root", files: { "svc.yaml": docker('\n  user: "0:0"') }, paths: [] },
    {
      runtime: "docker",
      files: { "svc.yaml": docker("") },
      paths: ["repo", "data", "volumes", "volumes/srv", "volumes/srv/media"],
    },
    {
      runtime: "compose",
      files: {
        "svc.yaml":
          'id: victim\nname: Victim\nversion: "1.0.0"\ncompose: { file: compose.yaml }\nstop: { grace: 1s }\n',
        "compose.yaml": `services:
  spy:
    image: svc/attack:1
    command: ["/bin/sh", "-c", "${spy(marker, ["/conf", "/db", "/site"]).replaceAll("$", "$$$$")}"]
    restart: always
    volumes: ["./a/conf:/conf:ro", "./a/db:/db", "./site:/site"]
`,
        "a/conf/x": "",
      },
      paths: ["repo", "repo/a", "repo/a/conf", "data", "data/a", "data/a/db", "data/site"],
    },
  ];
}

/** @param tries restarts of each victim with each form of the attack */
export async function attackMounts(tries: number): Promise<Finding[]> {
  if (whyNoDocker !== undefined) return [{ attack: "mounts", text: `skipped: ${whyNoDocker}`, isGood: true }];
  await using engine = await startEngine();
  await engine.images.build("svc/attack:1");
  await using daemon = await startDaemon({ config: engine.config });
  const marker = join(daemon.dir, "marker");
  await writeFile(marker, "");
  const findings: Finding[] = [];
  for (const victim of victims(marker)) findings.push(...(await attack(engine, daemon, victim, tries)));
  return findings;
}

async function attack(
  engine: TestEngine,
  daemon: TestDaemon,
  { runtime, files, paths }: Victim,
  tries: number,
): Promise<Finding[]> {
  await using owner = await daemon.as(nobody);
  const apps = owner.client(AppService);
  const dir = join(daemon.dir, runtime.replaceAll(" ", "-"));
  for (const [name, content] of Object.entries(files)) {
    const path = join(dir, name);
    await mkdir(join(path, ".."), { recursive: true });
    await writeFile(path, content);
  }
  await chmod(dir, 0o755);
  if (paths.length === 0) {
    const { reason } = await errorOf(apps.installApp({ spec: dir }));
    return [{ attack: runtime, text: `refused: ${reason}`, isGood: reason === "denied" }];
  }
  let directory: string;
  try {
    ({ directory } = await apps.installApp({ spec: dir }));
  } catch (error) {
    if (!/needs docker compose/.test(String(error))) throw error;
    return [{ attack: runtime, text: "skipped: this host has no compose", isGood: true }];
  }
  await apps.startApp({ id: "victim" });
  const findings: Finding[] = [];
  for (const form of ["open", "stealth", "daemon slowed", "daemon stopped"]) {
    const { swaps, attempts } = await swapDuring(
      paths.map((path) => join(directory, path)),
      form,
      async () => {
        await using _slowed = slow(daemon.pid, form);
        for (let n = 0; n < tries; n++) await restart(engine);
      },
    );
    const lines = await logOf(engine);
    const stolen = lines.filter((line) => line === "stolen").length;
    const others = lines.filter((line) => line !== String(nobody) && line !== "stolen").length;
    findings.push({
      attack: `mounts of ${runtime}, ${form}`,
      text: `${swaps} of ${attempts} swaps, ${stolen} stolen in ${tries} restarts, ${others} not as the owner`,
      isGood: swaps === 0 && stolen === 0 && others === 0 && attempts > 0 && lines.length > tries / 2,
    });
  }
  // Parent directories of a compose project's binds belong to the owner until a start: swapping one then makes the
  // start fail.
  if (runtime === "docker") {
    findings.push(
      await attackReplacements({ engine, owner, runtime, dir, directory, paths }, Math.ceil(tries / 5)),
    );
  }
  await eventually(() => apps.removeApp({ id: "victim" }), 60_000);
  return findings;
}

interface Replacement {
  readonly engine: TestEngine;
  readonly owner: Pick<TestDaemon, "client">;
  readonly runtime: string;
  /** The package, and its installation directory. */
  readonly dir: string;
  readonly directory: string;
  readonly paths: readonly string[];
}

/** Reinstalls the app and starts it: an upgrade, a restore, and a clone of it, each this many times. */
async function attackReplacements(
  { engine, owner, runtime, dir, directory, paths }: Replacement,
  times: number,
): Promise<Finding> {
  const [apps, backups] = [owner.client(AppService), owner.client(BackupService)];
  const manifest = await readFile(join(dir, "svc.yaml"), "utf8");
  const lines: string[] = [];
  // A busy engine may reject requests briefly.
  const until = <T>(work: () => Promise<T>): Promise<T> => eventually(work, 60_000);
  const look = async (id: string): Promise<void> => {
    const said = await eventually(async () => {
      const all = await logOf(engine, id);
      assert.notEqual(all.length, 0, `the log of ${id}`);
      return all;
    }, 40_000);
    lines.push(...said);
  };
  // The name of a clone if that name is in use.
  const clone = join(directory, "../victim-nobody");
  const all = [directory, clone].flatMap((root) => paths.map((path) => join(root, path)));
  const { swaps, attempts } = await swapDuring(all, "stealth", async () => {
    for (let n = 1; n <= times; n++) {
      await writeFile(join(dir, "svc.yaml"), manifest.replace('"1.0.0"', `"1.0.${n}"`));
      await apps.stopApp({ id: "victim" });
      await until(() => apps.upgradeApp({ id: "victim" }));
      await until(() => apps.startApp({ id: "victim" }));
      await look("victim");
      const { results } = await until(() => backups.createBackup({ appId: "victim" }));
      const [made] = results;
      await apps.stopApp({ id: "victim" });
      await until(() => backups.restoreBackup({ appId: "victim", storage: "local", name: made?.name ?? "" }));
      await until(() => apps.startApp({ id: "victim" }));
      await look("victim");
      const { id } = await until(() => apps.cloneApp({ id: "victim" }));
      await until(() => apps.startApp({ id }));
      await look(id);
      await until(() => apps.removeApp({ id }));
    }
  });
  const stolen = lines.filter((line) => line === "stolen").length;
  const others = lines.filter((line) => line !== String(nobody) && line !== "stolen").length;
  return {
    attack: `mounts of ${runtime}, upgraded, restored, cloned`,
    text: `${swaps} of ${attempts} swaps, ${stolen} stolen in ${3 * times} starts, ${others} not as the owner`,
    isGood: swaps === 0 && stolen === 0 && others === 0 && attempts > 0 && lines.length >= 3 * times,
  };
}

async function swapDuring(
  paths: readonly string[],
  form: string,
  work: () => Promise<void>,
): Promise<{ swaps: number; attempts: number }> {
  const hide = form === "open" ? "open" : "stealth";
  const child = spawn(
    "setpriv",
    [
      `--reuid=${nobody}`,
      `--regid=${nobody}`,
      "--clear-groups",
      process.execPath,
      swapper,
      hide,
      "/",
      ...paths,
    ],
    { stdio: ["pipe", "pipe", "inherit"] },
  );
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const exited = once(child, "exit");
  await lines.next();
  try {
    await work();
  } finally {
    child.stdin.end();
  }
  const { value } = await lines.next();
  await exited;
  const { tries, swaps } = JSON.parse(String(value)) as { tries: number; swaps: number };
  return { swaps, attempts: tries };
}

/** The daemon is stopped for good, or paused repeatedly, at any point between a check and its use. */
function slow(pid: number, form: string): AsyncDisposable {
  const over = new AbortController();
  const go = async (): Promise<void> => {
    while (!over.signal.aborted) {
      process.kill(pid, "SIGSTOP");
      await pause(slowed.stoppedMs, undefined, over).catch(() => undefined);
      process.kill(pid, "SIGCONT");
      await pause(slowed.runsMs, undefined, over).catch(() => undefined);
    }
  };
  if (form === "daemon stopped") process.kill(pid, "SIGSTOP");
  const going = form === "daemon slowed" ? go() : undefined;
  return {
    async [Symbol.asyncDispose]() {
      over.abort();
      await going;
      process.kill(pid, "SIGCONT");
    },
  };
}

/** Like the engine's own restart policy, without svc. */
async function restart(engine: TestEngine): Promise<void> {
  const container = await victimOf(engine);
  const { status } = await engine.request("POST", `/containers/${container}/restart?t=0`);
  assert.ok(status === 204 || status >= 500, `restart: ${status}`);
}

async function victimOf(engine: TestEngine, id = "victim"): Promise<string> {
  const filters = encodeURIComponent(JSON.stringify({ label: [`svc.app=${id}`] }));
  const answer = await engine.request("GET", `/containers/json?all=1&filters=${filters}`);
  const [container] = answer.expect(200) as { Id: string }[];
  assert.ok(container);
  return container.Id;
}

async function logOf(engine: TestEngine, id = "victim"): Promise<string[]> {
  const answer = await engine.request(
    "GET",
    `/containers/${await victimOf(engine, id)}/logs?stdout=1&stderr=1`,
  );
  // Each chunk of output has a header of eight bytes.
  return answer.text
    .split("\n")
    .map((line) => line.replace(/^.*[^ -~]/u, "").trim())
    .filter((line) => line !== "");
}
