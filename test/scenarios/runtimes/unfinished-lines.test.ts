/** Last lines of containers without a line feed, such as prompts. The engine hands them over when the process exits. */
import assert from "node:assert/strict";
import type { AppRuntime } from "../../../src/runtimes/contract.ts";
import type { RunnableApp } from "../../../src/runtimes/runnable-app.ts";
import { dockerTest, needsDocker } from "../../support/docker-test.ts";
import { eventually } from "../../support/eventually.ts";
import { sharedFixture } from "../../runtimes/support/container-tests.ts";
import type { DockerFixture } from "../../runtimes/support/docker-fixture.ts";
import { installedCompose } from "../../support/compose-generations.ts";

const fixtureNow = sharedFixture();
const withoutCompose = installedCompose === undefined ? " (skipped: needs docker-compose)" : "";

/** Prints a prompt, and exits after a signal. */
const script = "trap 'exit 0' USR1; echo ready; printf 'name? '; while :; do sleep 0.2; done";
const command = JSON.stringify(["/bin/sh", "-c", script]);
const policy = "restart: { policy: never }";

interface Case {
  readonly id: string;
  readonly title: string;
  readonly manifest: string;
  readonly files: Readonly<Record<string, string>>;
  readonly runtimeOf: (fixture: DockerFixture) => AppRuntime;
  readonly expected: readonly string[];
}

const composeOf = (more: string): string =>
  `services:\n  app:\n    image: svc/shell:1\n    command: ${command}\n    ${more}\n`;
const ofService = {
  manifest: `compose: { file: compose.yaml }\n${policy}`,
  runtimeOf: ({ compose }: DockerFixture) => compose,
};

const cases: readonly Case[] = [
  {
    id: "prompt-docker",
    title: "a container",
    manifest: `docker: { image: "svc/shell:1", command: ${command} }\n${policy}`,
    files: {},
    runtimeOf: ({ runtime }) => runtime,
    expected: ["ready", "name? "],
  },
  {
    id: "prompt-service",
    title: "a compose service",
    ...ofService,
    files: { "compose.yaml": composeOf("stdin_open: false") },
    expected: ["app | ready", "app | name? "],
  },
  {
    id: "prompt-terminal",
    title: "a compose service with a terminal",
    ...ofService,
    files: { "compose.yaml": composeOf("tty: true") },
    expected: ["app | ready", "app | name? "],
  },
];

for (const { id, title, manifest, files, runtimeOf, expected } of cases) {
  const skipped = needsDocker || (id === "prompt-docker" ? "" : withoutCompose);
  dockerTest(
    `the unfinished last line of ${title} is shown after its exit, also to followers${skipped}`,
    async (t) => {
      const fixture = fixtureNow();
      const runtime = runtimeOf(fixture);
      const app: RunnableApp = await fixture.app(id, manifest, { files });
      await runtime.prepare(app, {});
      await runtime.start(app);
      const texts = async (): Promise<string[]> =>
        (await runtime.logs(app, { tail: 10 })).lines.map(({ text }) => text);
      await eventually(async () => assert.deepEqual(await texts(), expected.slice(0, 1)));
      const followed: string[] = [];
      const signal = AbortSignal.timeout(60_000);
      const following = (async () => {
        for await (const { lines } of runtime.followLogs(app, { tail: 10, signal }))
          followed.push(...lines.map(({ text }) => text));
      })();
      await eventually(() => assert.deepEqual(followed, expected.slice(0, 1)));
      process.kill(await firstProcessOf(fixture, id), "SIGUSR1");
      await following;
      t.deepEqual(followed, expected);
      t.deepEqual(await texts(), expected);
      await runtime.remove(app);
    },
  );
}

/** The PID of the app's only container. */
async function firstProcessOf({ engine }: DockerFixture, id: string): Promise<number> {
  const filters = JSON.stringify({ label: [`svc.app=${id}`] });
  const listed = await engine.request("GET", `/containers/json?filters=${encodeURIComponent(filters)}`);
  const [container] = listed.expect(200) as { Id: string }[];
  const { State: state } = (await engine.request("GET", `/containers/${container?.Id ?? ""}/json`)).expect(
    200,
  ) as {
    State: { Pid: number };
  };
  return state.Pid;
}
