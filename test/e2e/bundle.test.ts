/** What ships: `dist/` alone, with nothing of the checkout beside it but the native package. */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { cp, chmod, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

test("the bundle is a whole daemon and command line", async (t) => {
  t.timeout(180_000);
  const dir = await mkdtemp(join(tmpdir(), "svc-bundle-"));
  try {
    await chmod(dir, 0o755);
    await run(process.execPath, [join(root, "src/build/bundle.ts")], { cwd: root });
    const dist = join(dir, "dist");
    await cp(join(root, "dist"), dist, { recursive: true });
    await mkdir(join(dir, "node_modules"));
    await symlink(join(root, "node_modules/koffi"), join(dir, "node_modules/koffi"));
    const socket = join(dir, "svc.sock");
    const config = join(dir, "svc.toml");
    await writeFile(
      config,
      `[api]\nlisten = "127.0.0.1:0"\nsocket = "${socket}"\n[store]\ndir = "${join(dir, "store")}"\n`,
    );
    const env = { PATH: process.env["PATH"] ?? "", HOME: dir, XDG_CACHE_HOME: join(dir, "cache") };
    const main = join(dist, "svc.cjs");
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
  } finally {
    await rm(dir, { recursive: true, force: true, maxRetries: 3 });
  }
});
