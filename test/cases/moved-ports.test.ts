/** Ports that a compose file fixes: an install, a clone and a restore choose others if these are in use. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { runSvc } from "../cli/support/run-svc.ts";
import { composeGenerations } from "../support/compose-generations.ts";
import { startDaemon } from "../support/daemon.ts";
import { needsDocker, sharedEngine } from "../support/docker-test.ts";
import { whyNoDocker } from "../support/docker.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writeFiles } from "../support/packages.ts";

const engineNow = sharedEngine();

for (const { name, dirs, missing } of composeGenerations) {
  (whyNoDocker === undefined && missing === "" ? test : test.skip)(
    `--port-auto, a clone and a restored copy move a fixed port that is in use: ${name}${needsDocker || missing}`,
    async (t) => {
      t.timeout(240_000);
      const engine = engineNow();
      await engine.images.build("svc/page:1", {
        cmd: ["/bin/httpd", "-f", "-p", "80", "-h", "/www"],
        files: { "www/index.html": "hello" },
      });
      await using daemon = await startDaemon({
        config: `${engine.config}\n[apps]\npath = ${JSON.stringify(dirs)}\n`,
      });
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
