/** A start that cannot succeed ends with a sentence, and one that needs no socket goes on without it. */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { isRoot, needsRoot } from "../support/daemon.ts";
import { eventually } from "../support/eventually.ts";
import { main } from "../support/svc-main.ts";

const run = promisify(execFile);

/** A daemon with a configuration, and what it has said. */
async function start(directory: string, lines: Record<string, string>) {
  const { store = join(directory, "store"), socket = join(directory, "svc.sock"), apps = "" } = lines;
  const file = join(directory, "svc.toml");
  await writeFile(
    file,
    `[api]\nlisten = "127.0.0.1:0"\nsocket = "${socket}"\n[store]\ndir = "${store}"\n[apps]\n${apps}\n`,
  );
  const child = spawn(process.execPath, [main, "daemon", "--config", file], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let said = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (bytes: Buffer) => (said += bytes.toString()));
  return { child, said: () => said };
}

/** What a start takes here that can succeed, while other tests keep the processors busy. */
let goodStartMs = 0;

test.before(async () => {
  const directory = await mkdtemp(join(tmpdir(), "svc-unusable-"));
  const begunMs = performance.now();
  const { child, said } = await start(directory, {});
  try {
    await eventually(() => {
      if (!said().includes("svc is ready")) throw new Error(said());
    }, 60_000);
    goodStartMs = performance.now() - begunMs;
  } finally {
    child.kill("SIGKILL");
    await once(child, "close", { signal: AbortSignal.timeout(60_000) });
    await rm(directory, { recursive: true });
  }
});

/** Within 5 s, and what a busy machine takes. */
async function expectEnd(
  t: ExecutionContext,
  directory: string,
  lines: Record<string, string>,
  sentence: RegExp,
) {
  const boundMs = 5_000 + 4 * goodStartMs;
  const begunMs = performance.now();
  const { child, said } = await start(directory, lines);
  t.teardown(() => child.kill("SIGKILL"));
  const [code] = (await once(child, "close", { signal: AbortSignal.timeout(60_000) })) as [number | null];
  const tookMs = performance.now() - begunMs;
  t.not(code, 0);
  t.regex(said(), sentence);
  t.true(tookMs < boundMs, `${Math.round(tookMs)} ms of ${Math.round(boundMs)}`);
}

for (const [title, lines, sentence] of [
  [
    "a store where nobody can make directories",
    { store: "/proc/x/store" },
    /^svc: the directory \/proc\/x.* cannot be made: /m,
  ],
  [
    "a store below a file",
    { store: `${main}/store` },
    /^svc: the directory .*(?:main\.ts|svc\.cjs)\/store cannot be made: /m,
  ],
  [
    "an account that is not there",
    { apps: 'root_runs_as = "no-such-account"' },
    /^svc: .*no account "no-such-account"/m,
  ],
] as const) {
  test(`${title} ends the start`, async (t) => {
    const directory = await mkdtemp(join(tmpdir(), "svc-unusable-"));
    t.teardown(() => rm(directory, { recursive: true }));
    await expectEnd(t, directory, lines, sentence);
  });
}

for (const [title, options, prepare, sentence] of [
  [
    "is read-only",
    "size=8m",
    "mount -o remount,ro",
    /^svc: the directory .*store cannot be made: read-only file system$/m,
  ],
  [
    "is read-only, where it was made before",
    "size=8m",
    "mkdir -m 711 $0/store && mount -o remount,ro",
    /^svc: the store .*store cannot be used: read-only file system$/m,
  ],
  [
    "is full",
    "size=1m",
    "head -c 1m /dev/zero > $0/fill; true",
    /^svc: the disk that holds the store is full; /m,
  ],
  [
    "is nearly full",
    "size=1m",
    "head -c 900k /dev/zero > $0/fill; true",
    /^svc: the disk that holds the store is full; /m,
  ],
  ["has no room for a further file", "nr_inodes=2", "true", /^svc: the disk that holds the store is full; /m],
] as const) {
  (isRoot ? test : test.skip)(
    `a store on a file system that ${title} ends the start${needsRoot}`,
    async (t) => {
      const directory = await mkdtemp(join(tmpdir(), "svc-unusable-"));
      t.teardown(() => rm(directory, { recursive: true }));
      const mounted = join(directory, "mounted");
      await mkdir(mounted);
      await run("mount", ["-t", "tmpfs", "-o", options, "none", mounted]);
      t.teardown(() => run("umount", [mounted]));
      await run("sh", ["-c", `${prepare} "$0"`, mounted]);
      await expectEnd(t, directory, { store: join(mounted, "store") }, sentence);
    },
  );
}

test("a socket's directory that cannot be made is warned of, and TCP serves", async (t) => {
  const directory = await mkdtemp(join(tmpdir(), "svc-unusable-"));
  t.teardown(() => rm(directory, { recursive: true }));
  const { child, said } = await start(directory, { socket: "/proc/x/svc.sock" });
  t.teardown(() => child.kill("SIGKILL"));
  await eventually(() => {
    if (!said().includes("svc is ready")) throw new Error(said());
  });
  t.regex(said(), /the directory \/proc\/x cannot be made/);
  child.kill("SIGTERM");
  await once(child, "close", { signal: AbortSignal.timeout(60_000) });
});
