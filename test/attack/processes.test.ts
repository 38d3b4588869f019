/** Containers of one user that together would start as many processes as the kernel has. */
import { readdir, stat } from "node:fs/promises";
import { composeTest, needsCompose } from "../runtimes/support/compose-test.ts";
import { sharedFixture } from "../runtimes/support/container-tests.ts";
import { DockerFixture } from "../runtimes/support/docker-fixture.ts";

const fixtureNow = sharedFixture();
/** No other test runs processes as this user. */
const uid = 7;
const maxUserProcesses = 120;

async function processesOf(owner: number): Promise<number> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const uids = await Promise.all(
    pids.map((pid) =>
      stat(`/proc/${pid}`).then(
        (status) => status.uid,
        () => undefined,
      ),
    ),
  );
  return uids.filter((each) => each === owner).length;
}

/** At the limit, the shell fails and becomes a program that needs no other process. */
const flood =
  "trap 'exec sleep 1000' EXIT; n=0; while [ $n -lt 100 ]; do sleep 1000 & n=$((n + 1)); done; exec sleep 1000";

composeTest(
  `the containers of a user together have a limited number of processes${needsCompose}`,
  async (t) => {
    t.timeout(120_000);
    const { engine } = fixtureNow();
    await using fixture = await DockerFixture.create(engine, { maxUserProcesses });
    const before = await processesOf(uid);
    const command = JSON.stringify(["sh", "-c", flood]);
    const single = await fixture.app("flood", `docker: { image: "svc/shell:1", command: ${command} }`, {
      uid,
    });
    const service = { image: "svc/shell:1", command: ["sh", "-c", flood.replaceAll("$", "$$$$")] };
    const files = {
      "compose.yaml": JSON.stringify({
        // A service cannot raise the limit.
        services: { one: service, two: { ...service, ulimits: { nproc: 60_000 } } },
      }),
    };
    const project = await fixture.app("floods", "compose: { file: compose.yaml }", { uid, files });
    for (const [runtime, app] of [
      [fixture.runtime, single],
      [fixture.compose, project],
    ] as const) {
      await runtime.prepare(app, {});
      await runtime.start(app);
    }
    const started = await processesOf(uid);
    t.true(started > 100, String(started));
    // The limit does not count the program with which a container starts.
    t.true(started <= before + maxUserProcesses + 6, `${started} processes, ${before} before`);
    await fixture.runtime.stop(single);
    await fixture.compose.stop(project);
    await fixture.runtime.remove(single);
    await fixture.compose.remove(project);
  },
);
