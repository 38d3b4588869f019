/** Ports that a compose file fixes: svc moves those in use, and follows the file when its numbers are edited. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { runSvc } from "../cli/support/run-svc.ts";
import { composeGenerations } from "../support/compose-generations.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { needsDocker, sharedEngine } from "../support/docker-test.ts";
import { whyNoDocker } from "../support/docker.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writeFiles } from "../support/packages.ts";

const engineNow = sharedEngine();

/** @param dirs where the daemon finds compose */
function daemonWith(dirs: readonly string[]): Promise<TestDaemon> {
  return startDaemon({ config: `${engineNow().config}\n[apps]\npath = ${JSON.stringify(dirs)}\n` });
}

async function buildPage(): Promise<void> {
  await engineNow().images.build("svc/page:1", {
    cmd: ["/bin/httpd", "-f", "-p", "80", "-h", "/www"],
    files: { "www/index.html": "hello" },
  });
}

for (const { name, dirs, missing } of composeGenerations) {
  (whyNoDocker === undefined && missing === "" ? test : test.skip)(
    `--port-auto, a clone and a restored copy move a fixed port that is in use: ${name}${needsDocker || missing}`,
    async (t) => {
      t.timeout(240_000);
      await buildPage();
      await using daemon = await daemonWith(dirs);
      const [apps, backups] = [daemon.client(AppService), daemon.client(BackupService)];
      const fixed = await freePort();
      const holder = createServer().listen(fixed, "127.0.0.1");
      t.teardown(() => holder.close());
      await once(holder, "listening");
      const spec = join(daemon.dir, "page");
      await writeFiles(spec, {
        "compose.yaml": `services: { web: { image: "svc/page:1", ports: ["127.0.0.1:${fixed}:80"] } }\n`,
      });

      const args = ["install", join(spec, "compose.yaml"), "--port-auto", "--yes"];
      const installed = await runSvc([...args, "--socket", daemon.socketPath]);
      t.is(installed.exitCode, 0, installed.stderr);
      t.regex(installed.stderr, new RegExp(`is \\d+, because ${fixed} is in use`));
      await apps.startApp({ id: "page" });
      const clone = await apps.cloneApp({ id: "page" });
      const { results } = await backups.createBackup({ appId: "page" });
      const archive = { appId: "page", storage: "local", name: results[0]?.name ?? "" };
      const restored = await backups.restoreBackup({ ...archive, asNew: true });

      const ports = new Set([fixed]);
      for (const id of ["page", clone.id, restored.appId]) {
        if (id !== "page") await apps.startApp({ id });
        const [published] = (await apps.listAppPorts({ id })).ports;
        ports.add(published?.port ?? fixed);
        await eventually(async () => {
          const page = await fetch(`http://127.0.0.1:${published?.port ?? 0}/`);
          assert.equal(await page.text(), "hello");
        });
      }
      t.is(ports.size, 4, "each app has a port of its own");
      t.is((await apps.listApps({})).apps.length, 3);
    },
  );
}

const [newest] = composeGenerations.filter(({ isClassic, missing }) => !isClassic && missing === "");

(whyNoDocker === undefined && newest !== undefined ? test : test.skip)(
  `an upgrade follows the ports of an edited compose file, unless someone chose a number${needsDocker}`,
  async (t) => {
    t.timeout(240_000);
    await buildPage();
    await using daemon = await daemonWith(newest?.dirs ?? []);
    const apps = daemon.client(AppService);
    const [first, edited, again, chosen, removed, added, other] = await Promise.all(
      Array.from({ length: 7 }, () => freePort()),
    );
    const spec = join(daemon.dir, "page");
    const write = (web: readonly string[], api: readonly string[]): Promise<void> =>
      writeFiles(spec, {
        "compose.yaml": JSON.stringify({
          services: {
            web: { image: "svc/page:1", ports: web.map((port) => `127.0.0.1:${port}`) },
            api: { image: "svc/page:1", ports: api.map((port) => `127.0.0.1:${port}`) },
          },
        }),
      });
    const svc = async (...args: string[]): Promise<string> => {
      const { exitCode, stdout, stderr } = await runSvc([...args, "--socket", daemon.socketPath]);
      t.is(exitCode, 0, stderr);
      return stdout + stderr;
    };
    const shown = async (): Promise<Record<string, number>> => {
      const { ports } = await apps.listAppPorts({ id: "page" });
      return Object.fromEntries(ports.map(({ name, port }) => [name, port]));
    };
    const requirePage = (port: number | undefined): Promise<void> =>
      eventually(async () => {
        const page = await fetch(`http://127.0.0.1:${port}/`);
        assert.equal(await page.text(), "hello");
      });

    await write([`${first}:80`, `${removed}:81`], [`${other}:80`]);
    await svc("install", join(spec, "compose.yaml"), "--yes", "--start");
    t.deepEqual(await shown(), { web: first, "web-81": removed, api: other });

    await write([`${edited}:80`], [`${other}:80`, `${added}:81`]);
    const generated = await readFile(join(spec, "svc.yaml"), "utf8");
    const said = await svc("upgrade", "page");
    t.true(said.includes(`port "web" is ${edited}, as in compose.yaml; svc.yaml still says ${first}`), said);
    t.true(said.includes(`compose.yaml does not publish port "web-81" (${removed}) any more`), said);
    t.deepEqual(await shown(), { web: edited, api: other, "api-81": added });
    await requirePage(edited);
    t.true((await svc("ls")).includes(String(edited)));
    t.is(await readFile(join(spec, "svc.yaml"), "utf8"), generated);

    await svc("settings", "set", "page", `web_port=${chosen}`);
    await write([`${again}:80`], [`${other}:80`, `${added}:81`]);
    await svc("upgrade", "page");
    t.deepEqual(await shown(), { web: chosen, api: other, "api-81": added });
    await requirePage(chosen);
    await svc("settings", "unset", "page", "web_port");
    await svc("restart", "page");
    await requirePage(again);

    await svc("backup", "page");
    await svc("restore", "page", "latest", "--stop", "--yes");
    t.is((await shown())["web"], again);
    await svc("rm", "page", "--yes");
    const saidAtInstall = await svc("install", spec, "--yes", "--start");
    t.true(saidAtInstall.includes(`port "web" is ${again}, as in compose.yaml`), saidAtInstall);
    await requirePage(again);
    t.is((await shown())["web"], again);
  },
);

for (const { name, dirs, missing } of composeGenerations) {
  (whyNoDocker === undefined && missing === "" ? test : test.skip)(
    `an upgrade follows a port that was edited in .env, unless someone chose a number: ${name}${needsDocker || missing}`,
    async (t) => {
      t.timeout(240_000);
      await engineNow().images.build("svc/idle:1", { cmd: ["/bin/sleep", "1000000"] });
      await using daemon = await daemonWith(dirs);
      const apps = daemon.client(AppService);
      const [first, edited, chosen] = await Promise.all(Array.from({ length: 3 }, () => freePort()));
      const spec = join(daemon.dir, "page");
      const write = (port: number | undefined): Promise<void> =>
        writeFiles(spec, { ".env": `WEB_PORT="${port}" # the page\n` });
      const svc = async (...args: string[]): Promise<string> => {
        const { exitCode, stdout, stderr } = await runSvc([...args, "--socket", daemon.socketPath]);
        t.is(exitCode, 0, stderr);
        return stdout + stderr;
      };
      const published = async (): Promise<unknown[]> => {
        const { ports } = await apps.listAppPorts({ id: "page" });
        return ports.map(({ port, addresses }) => [port, ...addresses]);
      };

      await writeFiles(spec, {
        "compose.yaml": `services: { web: { image: "svc/idle:1", ports: ["127.0.0.1:\${WEB_PORT:-${first}}:80"] } }\n`,
      });
      await svc("install", join(spec, "compose.yaml"), "--yes", "--start");
      await svc("upgrade", "page");
      t.deepEqual(await published(), [[first, "127.0.0.1"]]);
      await write(edited);
      const said = await svc("upgrade", "page");
      t.true(said.includes(`port "web" is ${edited}, as in .env`), said);
      t.deepEqual(await published(), [[edited, "127.0.0.1"]]);
      await svc("settings", "set", "page", `web_port=${chosen}`);
      await write(first);
      await svc("upgrade", "page");
      t.deepEqual(await published(), [[chosen, "127.0.0.1"]]);
    },
  );
}

(whyNoDocker === undefined && newest !== undefined ? test : test.skip)(
  `a clone with a service on the host's network says that its ports stay${needsDocker}`,
  async (t) => {
    t.timeout(120_000);
    await engineNow().images.build("svc/idle:1", { cmd: ["/bin/sleep", "1000000"] });
    await using daemon = await daemonWith(newest?.dirs ?? []);
    const spec = join(daemon.dir, "page");
    await writeFiles(spec, {
      "compose.yaml": `services: { web: { image: "svc/idle:1", network_mode: host } }\n`,
    });
    const socket = ["--socket", daemon.socketPath];
    const install = ["install", join(spec, "compose.yaml"), "--yes", "--accept-permissions"];
    const installed = await runSvc([...install, ...socket]);
    t.is(installed.exitCode, 0, installed.stderr);
    t.false(installed.stderr.includes("cannot get other ports"), installed.stderr);
    const { exitCode, stderr } = await runSvc(["clone", "page", ...socket]);
    t.is(exitCode, 0, stderr);
    t.true(stderr.includes("warning: services on the host's network cannot get other ports"), stderr);
  },
);
