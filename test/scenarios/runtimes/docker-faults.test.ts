/** An engine that is unavailable, hangs or restarts. */
import assert from "node:assert/strict";
import { SvcError } from "../../../src/errors.ts";
import type { RunnableApp } from "../../../src/runtimes/runnable-app.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import { eventually } from "../../support/eventually.ts";
import { failureOf } from "../../runtimes/support/container-tests.ts";
import { DockerFixture } from "../../runtimes/support/docker-fixture.ts";

const engineNow = sharedEngine();
/** The daemon's handling of apps whose desired state is running and that did not exit by themselves. */
function startLost(runtime: DockerFixture["runtime"], apps: readonly RunnableApp[]): Disposable {
  return runtime.onChange((id) => {
    const app = apps.find((one) => one.id === id);
    if (app !== undefined && runtime.status(id)?.isLost === true) void runtime.start(app);
  });
}

const forever = `docker: { image: "svc/shell:1" }\n`;

dockerTest(
  `running apps run again after an engine restart, and stopped ones do not${needsDocker}`,
  async (t) => {
    const engine = engineNow();
    await engine.images.build("svc/shell:1");
    await using fixture = await DockerFixture.create(engine);
    const { runtime } = fixture;
    const policies = ["always", "on-failure", "never"];
    const apps = [];
    for (const policy of policies) {
      const app = await fixture.app(policy, `${forever}restart: { policy: ${policy} }`);
      await runtime.prepare(app, {});
      await runtime.start(app);
      apps.push(app);
    }
    const stopped = await fixture.app("stopped", forever);
    await runtime.prepare(stopped, {});
    await runtime.start(stopped);
    await runtime.stop(stopped);
    await engine.stop();
    await eventually(() => {
      for (const id of policies) assert.equal(runtime.status(id)?.state, "UNKNOWN");
    }, 5_000);
    t.regex(runtime.status("always")!.reason, /container engine/);
    t.is(runtime.status("stopped")?.state, "STOPPED");
    const error = await runtime.stop(apps[0]!).then(
      () => undefined,
      (reason: unknown) => reason,
    );
    t.true(error instanceof SvcError && error.code === "unavailable");
    t.is((await runtime.stats(apps)).size, 0);
    using _starting = startLost(runtime, apps);
    await engine.start();
    await eventually(() => {
      for (const id of policies.slice(1)) assert.equal(runtime.status(id)?.state, "RUNNING", id);
    }, 20_000);
    // Also not the one whose stop was requested while the engine was unavailable.
    for (const id of ["stopped", "always"]) t.is(runtime.status(id)?.state, "STOPPED");
    for (const app of [...apps, stopped]) await runtime.remove(app);
  },
);

dockerTest(
  `an engine that hangs is unavailable, and its apps are back within 5 s of its return${needsDocker}`,
  async (t) => {
    const engine = engineNow();
    await engine.images.build("svc/shell:1");
    await using fixture = await DockerFixture.create(engine);
    const { runtime } = fixture;
    const app = await fixture.app("hung", forever);
    await runtime.prepare(app, {});
    await runtime.start(app);
    const startedAtMs = runtime.status("hung")!.startedAtMs;
    await engine.pause();
    try {
      await eventually(() => assert.equal(runtime.status("hung")?.state, "UNKNOWN"), 15_000);
    } finally {
      engine.resume();
    }
    await eventually(() => assert.equal(runtime.status("hung")?.state, "RUNNING"), 5_000);
    t.is(runtime.status("hung")?.startedAtMs, startedAtMs);
    await runtime.remove(app);
  },
);

dockerTest(`a daemon that starts before its engine finds its apps later${needsDocker}`, async (t) => {
  const engine = engineNow();
  await engine.images.build("svc/shell:1");
  const first = await DockerFixture.create(engine);
  const app = await first.app("early", `${forever}restart: { policy: never }`);
  await first.runtime.prepare(app, {});
  await first.runtime.start(app);
  await first[Symbol.asyncDispose]();
  await engine.stop();
  await using second = await DockerFixture.create(engine, { store: first.store });
  t.is(await second.runtime.adopt(app), "running");
  t.is(second.runtime.status("early")?.state, "UNKNOWN");
  using _starting = startLost(second.runtime, [app]);
  await engine.start();
  await eventually(() => assert.equal(second.runtime.status("early")?.state, "RUNNING"), 5_000);
  await second.runtime.remove(app);
});

dockerTest(
  `an app whose container was removed externally shows it, and the next daemon starts it${needsDocker}`,
  async (t) => {
    const engine = engineNow();
    await engine.images.build("svc/shell:1");
    await using fixture = await DockerFixture.create(engine);
    const { runtime } = fixture;
    const app = await fixture.app("gone", forever);
    await runtime.prepare(app, {});
    await runtime.start(app);
    const label = encodeURIComponent(JSON.stringify({ label: ["svc.app=gone"] }));
    const answer = await engine.request("GET", `/containers/json?filters=${label}`);
    const [container] = answer.expect(200) as { Id: string }[];
    (await engine.request("DELETE", `/containers/${container!.Id}?force=1`)).expect(204);
    const removed = { state: "CRASHED", reason: "its containers were removed outside of svc" } as const;
    await eventually(() => assert.partialDeepStrictEqual(runtime.status("gone"), removed), 5_000);

    await using next = await DockerFixture.create(engine, { store: fixture.store });
    t.is(await next.runtime.adopt(app), "lost");
    await next.runtime.start(app);
    t.like(next.runtime.status("gone"), { state: "RUNNING", reason: "" });
    await next.runtime.remove(app);
  },
);

dockerTest(
  `an app is visible again after its engine hung for less than the timeout${needsDocker}`,
  async (t) => {
    const engine = engineNow();
    await engine.images.build("svc/shell:1");
    await using fixture = await DockerFixture.create(engine);
    const { runtime } = fixture;
    const app = await fixture.app("brief", forever);
    await runtime.prepare(app, {});
    await runtime.start(app);
    await engine.pause();
    try {
      // As in a restart that the hang makes fail.
      t.is((await failureOf(runtime.stop(app))).code, "unavailable");
      await runtime.adopt(app);
      t.is(runtime.status("brief")?.state, "UNKNOWN");
    } finally {
      engine.resume();
    }
    await eventually(() => assert.equal(runtime.status("brief")?.state, "RUNNING"), 20_000);
    await runtime.remove(app);
  },
);
