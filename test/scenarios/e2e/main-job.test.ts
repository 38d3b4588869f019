/**
 * The main workflow on a real daemon, the same over every protocol: install, start, logs, settings, upgrade, clone,
 * remove.
 */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { toJson } from "@bufbuild/protobuf";
import { ValueSchema } from "@bufbuild/protobuf/wkt";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { DaemonService } from "../../../gen/svc/v1/daemon_pb.ts";
import { sharedDaemon } from "../../support/daemon-test.ts";
import { protocols } from "../../support/daemon.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { addVersion, freePort, writeRepository } from "../../support/packages.ts";

const emptyDaemon = sharedDaemon();

for (const protocol of protocols) {
  test(`the main workflow over ${protocol}`, async (t) => {
    const daemon = await emptyDaemon();
    const apps = daemon.client(AppService, protocol);
    const port = await freePort();
    const repository = join(daemon.dir, "web.git");
    const spec = await writeRepository(repository, port, [{ version: "1.0.0" }]);
    const ask = async (path = "/"): Promise<{ version: string; greeting: string }> =>
      (await (await fetch(`http://127.0.0.1:${port}${path}`)).json()) as {
        version: string;
        greeting: string;
      };

    const installed = await apps.installApp({ spec });
    t.like(installed, { id: "web", state: "STOPPED", version: "v1.0.0", runtime: "process", enabled: false });
    t.like(installed.origin, { kind: "git", url: spec, tag: "v1.0.0" });
    t.deepEqual(
      installed.ports.map(({ name, port: number, protocol: of }) => [name, number, of]),
      [["http", port, "tcp"]],
    );
    t.true(existsSync(join(daemon.storeDir, "apps", "web", "repo", "svc.yaml")));

    const started = await apps.startApp({ id: "web" });
    t.like(started, { state: "RUNNING", enabled: true });
    t.like(await eventually(() => ask()), { version: "1.0.0", greeting: "hello" });
    t.is((await apps.startApp({ id: "web" })).state, "RUNNING", "starting a running app changes nothing");

    const logs = await eventually(async () => {
      const answer = await apps.getAppLogs({ id: "web", tail: 10, timestamps: true });
      assert.equal(answer.lines.length, 2);
      return answer;
    });
    t.true(logs.lines.every((line) => line.time !== undefined));
    t.deepEqual(logs.lines.map(({ stream, text }) => [stream, text]).toSorted(), [
      ["stderr", "a line on stderr"],
      ["stdout", `listening on ${port} with greeting hello`],
    ]);

    const before = await apps.getAppSettings({ id: "web" });
    t.deepEqual(before.values, { port, greeting: "hello" });
    const schema = before.schema === undefined ? undefined : toJson(ValueSchema, before.schema);
    t.like(schema, {
      type: "object",
      additionalProperties: false,
      properties: {
        greeting: { type: "string", maxLength: 40, default: "hello" },
        password: { writeOnly: true },
      },
    });
    const written = await apps.updateAppSettings({
      id: "web",
      values: { greeting: "moin", password: "hush" },
    });
    t.deepEqual(written.values, { port, greeting: "moin", password: "***" });
    t.true(written.restartRequired);
    const refused = await errorOf(
      apps.updateAppSettings({ id: "web", values: { greeting: 7, colour: "red" } }),
    );
    t.like(refused, { code: "InvalidArgument", reason: "invalid_request" });
    t.deepEqual(
      refused.payload.case === "invalidRequest"
        ? refused.payload.value.violations.map((v) => v.field).toSorted()
        : [],
      ["values.colour", "values.greeting"],
    );
    t.is((await apps.restartApp({ id: "web" })).restartRequired, false);
    t.like(await eventually(() => ask()), { greeting: "moin" });

    await addVersion(repository, port, { version: "1.1.0" });
    t.like(await errorOf(apps.upgradeApp({ id: "web" })), {
      code: "FailedPrecondition",
      reason: "app_running",
    });
    t.is((await apps.stopApp({ id: "web" })).state, "STOPPED");
    await t.throwsAsync(ask(), undefined, "nothing responds after a stop");
    t.like(await apps.upgradeApp({ id: "web" }), { upToDate: false, from: "v1.0.0", to: "v1.1.0" });
    t.like(await apps.upgradeApp({ id: "web" }), { upToDate: true, from: "v1.1.0", to: "v1.1.0" });
    await apps.startApp({ id: "web" });
    t.like(await eventually(() => ask()), { version: "1.1.0", greeting: "moin" });

    const clone = await apps.cloneApp({ id: "web" });
    t.like(clone, { id: "web-2", name: "web-2", sourceRunning: true });
    t.true(clone.copiedBytes > 0n);
    t.is((await apps.getApp({ id: "web-2" })).state, "STOPPED");

    const disk = await apps.getAppDisk({ id: "web" });
    t.true(disk.repositoryBytes > 0n && disk.totalBytes >= disk.repositoryBytes + disk.dataBytes);
    t.deepEqual((await apps.getDiskReport({})).apps.map(({ id }) => id).toSorted(), ["web", "web-2"]);
    t.deepEqual(
      (await apps.getPortReport({})).apps.map(({ id }) => id),
      ["web", "web-2"],
    );
    const { stats } = await apps.getAppStats({});
    t.deepEqual(
      stats.map(({ id }) => id),
      ["web"],
      "only running apps are sampled",
    );
    t.true((stats[0]?.memoryBytes ?? 0n) > 1_000_000n);
    t.true(stats[0]?.diskReadBytes !== undefined && stats[0].networkSentBytes === undefined);
    t.like((await daemon.client(DaemonService, protocol).getStatus({})).apps, {
      total: 2,
      running: 1,
      stopped: 1,
    });

    t.like(
      await errorOf(apps.updateAppSettings({ id: "web" })),
      { reason: "invalid_request" },
      "values are required",
    );
    t.true((await apps.removeApp({ id: "web" })).freedBytes > 0n);
    await t.throwsAsync(ask(), undefined, "removal stops the app first");
    t.false(existsSync(join(daemon.storeDir, "apps", "web")));
    t.false(existsSync(join(daemon.storeDir, "run", "web")));
    t.like(await errorOf(apps.getApp({ id: "web" })), { code: "NotFound", reason: "not_found" });
    t.deepEqual(
      (await apps.listApps({})).apps.map(({ id }) => id),
      ["web-2"],
    );
    await apps.removeApp({ id: "web-2" });
  });
}
