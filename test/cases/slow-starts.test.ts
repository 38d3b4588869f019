/** Starts take as long as they take: a migration may run longer than the five minutes after which many clients give up. */
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { runSvc } from "../cli/support/run-svc.ts";
import { composeGenerations } from "../support/compose-generations.ts";
import { startDaemon } from "../support/daemon.ts";
import { needsDocker, sharedEngine } from "../support/docker-test.ts";
import { whyNoDocker } from "../support/docker.ts";
import { writeFiles } from "../support/packages.ts";

const engineNow = sharedEngine();
const isLong = process.env["SVC_LONG"] !== undefined;
const longOnly = isLong ? "" : " (skipped: takes six minutes; set SVC_LONG=1)";
const migrationSecs = 320;

for (const { name, dirs, missing } of composeGenerations) {
  (isLong && whyNoDocker === undefined && missing === "" ? test : test.skip)(
    `svc start waits for a migration of ${migrationSecs} s: ${name}${needsDocker || missing || longOnly}`,
    async (t) => {
      t.timeout(900_000);
      const engine = engineNow();
      await engine.images.build("svc/slow:1");
      await using daemon = await startDaemon({
        config: `${engine.config}\n[apps]\npath = ${JSON.stringify(dirs)}\n`,
      });
      const spec = join(daemon.dir, "slow");
      await writeFiles(spec, {
        "compose.yaml": `services:
  migrate: { image: "svc/slow:1", command: [sh, -c, "sleep ${migrationSecs}; echo migrated >> /state/log"], volumes: ["state:/state"] }
  app:
    image: svc/slow:1
    command: [sh, -c, "cat /state/log; trap 'exit 0' TERM; sleep 3600 & wait"]
    volumes: ["state:/state"]
    depends_on: { migrate: { condition: service_completed_successfully } }
volumes: { state: {} }
`,
      });
      const svc = (...args: string[]) => runSvc([...args, "--socket", daemon.socketPath]);
      const installed = await svc("install", join(spec, "compose.yaml"), "--yes");
      t.is(installed.exitCode, 0, installed.stderr);
      const startedMs = performance.now();
      const started = await svc("start", "slow");
      t.is(started.exitCode, 0, started.stderr);
      t.true(performance.now() - startedMs >= migrationSecs * 1_000);
      const apps = daemon.client(AppService);
      t.is((await apps.getApp({ id: "slow" })).state, "RUNNING");
      const { lines } = await apps.getAppLogs({ id: "slow" });
      t.deepEqual(
        lines.map(({ text }) => text),
        ["app | migrated"],
        "the migration ran once",
      );
    },
  );
}
