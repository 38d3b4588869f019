/** A daemon that is killed during an adoption: the next one starts the old containers again, with the same data. */
import assert from "node:assert/strict";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { DockerService } from "../../gen/svc/v1/docker_pb.ts";
import { isRoot } from "../support/daemon.ts";
import { needsDocker, sharedEngine } from "../support/docker-test.ts";
import { whyNoDocker } from "../support/docker.ts";
import { eventually } from "../support/eventually.ts";
import { writeFiles } from "../support/packages.ts";
import { createStack, isThere, slowMs, statesOf } from "../support/unmanaged-stack.ts";

const engineNow = sharedEngine();
const needs = `${needsDocker}${isRoot ? "" : " (skipped: needs root)"}`;
const adoptTest = whyNoDocker === undefined && isRoot ? test.serial : test.skip;

/** Steps at whose start the daemon is killed. */
const steps = ["export", "stop", "start"] as const;

for (const step of steps) {
  adoptTest(
    `nothing is lost if the daemon is killed in the step "${step}" of an adoption${needs}`,
    async (t) => {
      t.timeout(300_000);
      const name = `killed-${step}`;
      const { daemon, compose, served } = await createStack(engineNow(), name);
      await using _daemon = daemon;
      await compose("up", "--detach");
      const before = await served();
      const seen: string[] = [];
      const adopt = async (): Promise<void> => {
        for await (const { event } of daemon.client(DockerService).adoptStackStream({ name })) {
          if (event.case !== "progress") continue;
          seen.push(event.value.step);
          if (event.value.step === step) await daemon.kill();
        }
      };
      await t.throwsAsync(adopt(), undefined, `the daemon is killed; steps: ${seen.join(", ")}`);
      await daemon.restart();

      t.deepEqual(await served(), before);
      const apps = daemon.client(AppService);
      await eventually(async () => {
        assert.deepEqual((await apps.listApps({})).apps, []);
        assert.deepEqual(await statesOf(engineNow(), `${name}-web`), ["running"]);
      }, slowMs);
      t.deepEqual(await served(), before);
    },
  );
}

adoptTest(`an adoption succeeds although its old container cannot be removed yet${needs}`, async (t) => {
  t.timeout(300_000);
  const name = "occupied";
  const engine = engineNow();
  const { daemon, dir, compose } = await createStack(engine, name);
  await using _daemon = daemon;
  // Without ports, so that old and new containers can run at the same time.
  await writeFiles(dir, {
    "compose.yaml": `services:\n  web: { image: busybox, container_name: ${name}-web, command: [sleep, "600"] }\n`,
  });
  await compose("up", "--detach");
  for await (const { event } of daemon.client(DockerService).adoptStackStream({ name, removeOld: true })) {
    if (event.case !== "progress" || event.value.step !== "start") continue;
    // The engine removes no running container.
    (await engine.request("POST", `/containers/${name}-web/start`)).expect(204);
  }
  t.true(await isThere(join(dir, "svc.yaml")));
  t.deepEqual(await statesOf(engine, `${name}-web`), ["running"]);

  (await engine.request("POST", `/containers/${name}-web/stop?t=0`)).expect(204);
  const apps = daemon.client(AppService);
  await eventually(async () => {
    assert.deepEqual(await statesOf(engine, `${name}-web`), []);
    assert.partialDeepStrictEqual(await apps.getApp({ id: name }), { state: "RUNNING", enabled: true });
  }, slowMs);
  t.true(await isThere(join(dir, "svc.yaml")));
});
