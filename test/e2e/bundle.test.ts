/** What ships: `dist/` alone, with nothing of the checkout beside it, and no packages above it. */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { access, chmod, cp, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Script } from "node:vm";
import test from "ava";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

/** A Node that is too old: many a distribution's own. */
const oldNode = "/usr/bin/node";
const oldVersion = await run(oldNode, ["--version"]).then(
  ({ stdout }) => stdout.trim(),
  () => undefined,
);
const isOld = oldVersion !== undefined && Number.parseInt(oldVersion.slice(1), 10) < 24;
const [oldNodeTest, needsOldNode] = isOld ? [test, ""] : [test.skip, ` (needs a ${oldNode} before 24)`];

interface Built {
  readonly dir: string;
  /** What the build said. */
  readonly said: string;
}

let built: Promise<Built> | undefined;
/** A copy of what is built, made once. Resolves with the directory around `dist`. */
function bundle(): Promise<Built> {
  return (built ??= build());
}

async function build(): Promise<Built> {
  const dir = await mkdtemp(join(tmpdir(), "svc-bundle-"));
  await chmod(dir, 0o755);
  const { stdout: said } = await run(process.execPath, [join(root, "src/build/bundle.ts")], { cwd: root });
  await cp(join(root, "dist"), join(dir, "dist"), { recursive: true });
  return { dir, said };
}

test.after.always(async () => {
  if (built !== undefined) await rm((await built).dir, { recursive: true, force: true, maxRetries: 3 });
});

test("the bundle is a whole daemon and command line", async (t) => {
  t.timeout(180_000);
  const { dir, said } = await bundle();
  t.is(
    said,
    `${join(root, "dist")} is all of svc, to be copied as a whole: start it with node ${join(root, "dist/svc.cjs")} daemon\n`,
  );
  for (let above = dir; above !== dirname(above); above = dirname(above)) {
    await t.throwsAsync(access(join(above, "node_modules")), { code: "ENOENT" }, above);
  }
  for (const name of ["first-stage", "ahead", "daemon", "settings"]) {
    const pack = join(dir, "dist/chunks", name);
    const source = (await readFile(`${pack}.js`, "latin1")).replace(/^module\.exports=/, "");
    const cachedData = await readFile(`${pack}.code`);
    t.false(new Script(source, { cachedData }).cachedDataRejected, `${name}: compiled by this V8`);
  }
  const socket = join(dir, "svc.sock");
  const config = join(dir, "svc.toml");
  await writeFile(
    config,
    `[api]\nlisten = "127.0.0.1:0"\nsocket = "${socket}"\n[store]\ndir = "${join(dir, "store")}"\n`,
  );
  const env = { PATH: process.env["PATH"] ?? "", HOME: dir, XDG_CACHE_HOME: join(dir, "cache") };
  // As somebody puts it on the PATH.
  const main = join(dir, "svc");
  await symlink("dist/svc.cjs", main);
  const svc = async (...args: string[]): Promise<string> =>
    (await run(process.execPath, [main, "--socket", socket, ...args], { env })).stdout;
  const daemon = spawn(process.execPath, [main, "daemon", "--config", config], {
    env,
    stdio: ["ignore", "ignore", "inherit"],
  });
  try {
    await eventually(() => svc("status"), 30_000);
    const port = await freePort();
    await writePackage(join(dir, "package"), port);
    t.regex(await svc("install", join(dir, "package")), /Installed web/);
    t.regex(await svc("app", "start", "web"), /RUNNING/);
    t.is((await eventually(() => fetch(`http://127.0.0.1:${port}`))).status, 200);
    await eventually(async () => assert.match(await svc("app", "logs", "web"), /listening on/));
    t.regex(await svc("ls"), /web +Test web server +RUNNING/);
    t.regex(await svc("app", "settings", "set", "web", "greeting=moin"), /greeting +moin/);
    t.regex(await svc("app", "clone", "web"), /web-2/);
    t.regex(await svc("app", "remove", "web", "--yes"), /Removed web/);
  } finally {
    daemon.kill("SIGTERM");
    await once(daemon, "exit");
  }
});

oldNodeTest(`an older Node is told which one svc needs${needsOldNode}`, async (t) => {
  t.timeout(180_000);
  const { dir } = await bundle();
  const refusal = await t.throwsAsync<Error & { code?: number; stderr?: string }>(
    run(oldNode, [join(dir, "dist/svc.cjs"), "ls"]),
  );
  t.is(refusal.stderr, `svc needs Node 24 or newer, and this is ${oldVersion}\n`);
  t.is(refusal.code, 1);
});

test("a user's helper loads nothing of Node for archives and commands before they are asked for", async (t) => {
  const { dir } = await bundle();
  const hook = join(dir, "loaded.cjs");
  const loaded = `process.moduleLoadList.filter((name) => / (crypto|child_process)$/.test(name))`;
  await writeFile(hook, `process.once("exit", () => console.error(JSON.stringify(${loaded})));\n`);
  const identity = { uid: process.getuid?.(), gid: process.getgid?.(), groups: [], dropped: false };
  const helper = join(dir, "dist/identity/helper.cjs");
  const argv = ["--require", hook, helper, JSON.stringify(identity)];
  const running = run(process.execPath, argv);
  running.child.stdin?.end();
  const { stdout, stderr } = await running;
  t.regex(stdout, /"hello"/);
  t.deepEqual(JSON.parse(stderr), []);
});
