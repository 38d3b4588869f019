/** The shipped bundle: only `dist/`, without the checkout beside it and without packages above it. */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { access, chmod, cp, mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
import { eventually, nextEvent } from "../../support/eventually.ts";
import { freePort, writePackage } from "../../support/packages.ts";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../../..", import.meta.url));

/** A Node that is too old, as many distributions have. */
const oldNode = "/usr/bin/node";
const oldVersion = await run(oldNode, ["--version"]).then(
  ({ stdout }) => stdout.trim(),
  () => undefined,
);
const isOld = oldVersion !== undefined && Number.parseInt(oldVersion.slice(1), 10) < 24;
const [oldNodeTest, needsOldNode] = isOld ? [test, ""] : [test.skip, ` (needs a ${oldNode} before 24)`];

interface Built {
  readonly dir: string;
  /** The output of the build. */
  readonly buildOutput: string;
}

let built: Promise<Built> | undefined;
/** A copy of the built bundle, made once. Resolves with the directory around `dist`. */
function bundle(): Promise<Built> {
  return (built ??= build());
}

async function build(): Promise<Built> {
  const dir = await mkdtemp(join(tmpdir(), "svc-bundle-"));
  await chmod(dir, 0o755);
  const { stdout: buildOutput } = await run(process.execPath, [join(root, "src/build/bundle.ts")], {
    cwd: root,
  });
  await cp(join(root, "dist"), join(dir, "dist"), { recursive: true });
  return { dir, buildOutput };
}

test.after.always(async () => {
  if (built !== undefined) await rm((await built).dir, { recursive: true, force: true, maxRetries: 3 });
});

test("the bundle is a complete daemon and CLI", async (t) => {
  t.timeout(180_000);
  const { dir, buildOutput } = await bundle();
  t.is(
    buildOutput,
    `${join(root, "dist")} is all of svc, to be copied as a whole: start it with node ${join(root, "dist/svc.cjs")} daemon\n`,
  );
  for (let above = dir; above !== dirname(above); above = dirname(above)) {
    await t.throwsAsync(access(join(above, "node_modules")), { code: "ENOENT" }, above);
  }
  const socket = join(dir, "svc.sock");
  const config = join(dir, "svc.toml");
  await writeFile(
    config,
    `[api]\nlisten = "127.0.0.1:0"\nsocket = "${socket}"\n[store]\ndir = "${join(dir, "store")}"\n`,
  );
  const env = { PATH: process.env["PATH"] ?? "", HOME: dir, XDG_CACHE_HOME: join(dir, "cache") };
  // As a user adds it to PATH.
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
    const cache = process.getuid?.() === 0 ? "/var/cache/svc/compile" : join(dir, "cache/svc/compile");
    t.true((await readdir(cache)).length > 0, "Node keeps what it has compiled");
  } finally {
    daemon.kill("SIGTERM");
    await nextEvent(daemon, "exit");
  }
});

oldNodeTest(`an older Node prints which version svc requires${needsOldNode}`, async (t) => {
  t.timeout(180_000);
  const { dir } = await bundle();
  const refusal = await t.throwsAsync<Error & { code?: number; stderr?: string }>(
    run(oldNode, [join(dir, "dist/svc.cjs"), "ls"]),
  );
  t.is(refusal.stderr, `svc needs Node 24 or newer, and this is ${oldVersion}\n`);
  t.is(refusal.code, 1);
});

test("a user helper process loads Node's modules for archives and commands only on demand", async (t) => {
  const { dir } = await bundle();
  const hook = join(dir, "loaded.cjs");
  const loaded = `process.moduleLoadList.filter((name) => / (crypto|child_process)$/.test(name))`;
  // The helper ends by killing itself.
  await writeFile(
    hook,
    `const { kill } = process;
process.kill = (...args) => {
  require("node:fs").writeSync(2, "\\n" + JSON.stringify(${loaded}));
  return kill(...args);
};
`,
  );
  const expected = { uid: process.getuid?.(), gid: process.getgid?.(), groups: [], dropped: false };
  const helper = join(dir, "dist/run-as/helper.cjs");
  const argv = ["--require", hook, helper, JSON.stringify(expected)];
  const running = run(process.execPath, argv);
  running.child.stdin?.end();
  const error = await t.throwsAsync<Error & { stdout?: string; stderr?: string }>(running, {
    message: /lost its connection/,
  });
  const { stdout = "", stderr = "" } = error;
  t.regex(stdout, /"hello"/);
  // The reason for its exit comes first.
  t.deepEqual(JSON.parse(stderr.slice(stderr.indexOf("["))), []);
});
