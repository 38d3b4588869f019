/** The engine never starts an app's container: svc restarts exited ones, after its check. */
import assert from "node:assert/strict";
import { rename, symlink } from "node:fs/promises";
import { join } from "node:path";
import { dockerTest, needsDocker } from "../../support/docker-test.ts";
import type { TestEngine } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { forever, sharedFixture, startApp } from "../../runtimes/support/container-tests.ts";
import { composeTest, needsCompose } from "../../runtimes/support/compose-test.ts";

const fixtureNow = sharedFixture();
const deadlineMs = 20_000;

interface Inspected {
  Id: string;
  Config: { Labels: Record<string, string> };
  HostConfig: { RestartPolicy: { Name: string } };
  State: { Status: string; Pid: number; StartedAt: string };
}

/** The containers of an app, by service. */
async function containersOf(engine: TestEngine, app: string): Promise<Record<string, Inspected>> {
  const filters = encodeURIComponent(JSON.stringify({ label: [`svc.app=${app}`] }));
  const all = (await engine.request("GET", `/containers/json?all=1&filters=${filters}`)).expect(200);
  const inspected = (all as { Id: string }[]).map(
    async ({ Id }) => (await engine.request("GET", `/containers/${Id}/json`)).expect(200) as Inspected,
  );
  return Object.fromEntries(
    (await Promise.all(inspected)).map((one) => [
      one.Config.Labels["com.docker.compose.service"] ?? "it",
      one,
    ]),
  );
}

const shell = (script: string, more = ""): string =>
  `docker: { image: "svc/shell:1", entrypoint: [/bin/sh, -c], command: [${JSON.stringify(script)}] }\n${more}`;

for (const policy of ["always", "on-failure", "never"]) {
  dockerTest(`a container with policy ${policy} is not restarted by the engine${needsDocker}`, async (t) => {
    const fixture = fixtureNow();
    const { engine, runtime } = fixture;
    const app = await startApp(
      runtime,
      await fixture.app(policy, shell(forever, `restart: { policy: ${policy} }`)),
    );
    const { it } = await containersOf(engine, policy);
    t.is(it?.HostConfig.RestartPolicy.Name, "no");
    // It exits by itself, not because of the engine.
    process.kill(it!.State.Pid, "SIGKILL");
    if (policy === "never") {
      await eventually(() => assert.equal(runtime.status(policy)?.state, "CRASHED"), deadlineMs);
      t.regex(runtime.status(policy)!.reason, /exited with code 137; its restart policy is never/);
    } else {
      await eventually(() => {
        assert.partialDeepStrictEqual(runtime.status(policy), {
          state: "RUNNING",
          restarts: 1,
          exitCode: 137,
        });
      }, deadlineMs);
    }
    await runtime.remove(app);
  });
}

dockerTest(
  `a container that an operator stops is restarted, whatever its policy${needsDocker}`,
  async (t) => {
    const fixture = fixtureNow();
    const { engine, runtime } = fixture;
    const app = await startApp(
      runtime,
      await fixture.app("back", shell(forever, "restart: { policy: never }")),
    );
    const { it } = await containersOf(engine, "back");
    (await engine.request("POST", `/containers/${it!.Id}/stop`)).expect(204);
    await eventually(async () => {
      const { it: now } = await containersOf(engine, "back");
      assert.ok(now!.State.Status === "running" && now!.State.StartedAt !== it!.State.StartedAt);
      assert.equal(runtime.status("back")?.state, "RUNNING");
    }, deadlineMs);
    await runtime.stop(app);
    t.is(runtime.status("back")?.state, "STOPPED");
    await runtime.remove(app);
  },
);

dockerTest(`a container that would fail the check is not restarted${needsDocker}`, async (t) => {
  const fixture = fixtureNow();
  const { engine, runtime } = fixture;
  const manifest = `${shell(forever)}\nvolumes: [{ name: media, path: /srv/media }]`;
  const app = await startApp(runtime, await fixture.app("swapped", manifest));
  await rename(join(app.directory, "volumes/srv/media"), join(app.directory, "volumes/srv/kept"));
  await symlink("/root", join(app.directory, "volumes/srv/media"));
  const { it } = await containersOf(engine, "swapped");
  process.kill(it!.State.Pid, "SIGKILL");
  await eventually(() => {
    assert.equal(runtime.status("swapped")?.state, "CRASHED");
    assert.match(runtime.status("swapped")!.reason, /exited with code 137; .*symlink/);
  }, deadlineMs);
  const { it: now } = await containersOf(engine, "swapped");
  t.is(now!.State.StartedAt, it!.State.StartedAt);
  await runtime.remove(app);
});

composeTest(
  `services restart as their file states, and only by svc; old containers lose their policy${needsCompose}`,
  async (t) => {
    const fixture = fixtureNow();
    const { engine, compose } = fixture;
    const once = `command: ["/bin/sh", "-c", "sleep 2; exit 0"]`;
    const app = await startApp(
      compose,
      await fixture.app("words", "compose: { file: compose.yaml }\nrestart: { policy: never }", {
        files: {
          "compose.yaml": `services:
  always: { image: "svc/shell:1", restart: always, ${once} }
  failure: { image: "svc/shell:1", restart: "on-failure:3" }
  deployed: { image: "svc/shell:1", restart: "no", deploy: { restart_policy: { condition: any } } }
  plain: { image: "svc/shell:1" }
  done: { image: "svc/shell:1", restart: on-failure, ${once} }
`,
        },
      }),
    );
    const before = await containersOf(engine, "words");
    for (const [name, { HostConfig }] of Object.entries(before)) {
      t.is(HostConfig.RestartPolicy.Name, "no", name);
    }
    for (const name of ["failure", "deployed", "plain"]) process.kill(before[name]!.State.Pid, "SIGKILL");
    await eventually(async () => {
      const now = await containersOf(engine, "words");
      const restarted = Object.keys(now).filter(
        (name) => now[name]!.State.StartedAt !== before[name]!.State.StartedAt,
      );
      assert.deepEqual(restarted.sort(), ["always", "deployed", "failure"]);
      assert.equal(now["plain"]?.State.Status, "exited");
      assert.equal(now["done"]?.State.Status, "exited");
    }, deadlineMs);
    t.regex(compose.status("words")!.reason, /service "plain" exited with code 137/);
    // As an earlier version of svc created them, or somebody changed them.
    const path = `/containers/${before["failure"]!.Id}/update`;
    (await engine.request("POST", path, { RestartPolicy: { Name: "always" } })).expect(200);
    await eventually(async () => {
      const { failure } = await containersOf(engine, "words");
      assert.equal(failure?.HostConfig.RestartPolicy.Name, "no");
    }, deadlineMs);
    await compose.remove(app);
  },
);
