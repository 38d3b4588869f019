/** Helpers for the tests of both runtimes over an engine. */
import assert from "node:assert/strict";
import test from "ava";
import { SvcError } from "../../../src/errors.ts";
import type { AppRuntime } from "../../../src/runtimes/contract.ts";
import type { RunnableApp } from "../../../src/runtimes/runnable-app.ts";
import { sharedEngine } from "../../support/docker-test.ts";
import { whyNoDocker } from "../../support/docker.ts";
import { DockerFixture } from "./docker-fixture.ts";

/** A shell script that runs until it is stopped. */
export const forever = "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done";

/**
 * One fixture for all tests of a file, for its top level: `const fixtureNow = sharedFixture()`. Its engine has the
 * images `svc/web:1`, which responds with "hello" on port 8080, and `svc/shell:1`.
 */
export function sharedFixture(): () => DockerFixture {
  const engineNow = sharedEngine();
  const shared: { fixture?: DockerFixture } = {};
  if (whyNoDocker === undefined) {
    test.before(async () => {
      const engine = engineNow();
      shared.fixture = await DockerFixture.create(engine);
      await engine.images.build("svc/web:1", {
        cmd: ["/bin/httpd", "-f", "-p", "8080", "-h", "/www"],
        files: { "www/index.html": "hello" },
      });
      await engine.images.build("svc/shell:1");
    });
    test.after.always(() => shared.fixture?.[Symbol.asyncDispose]());
  }
  return () => {
    if (shared.fixture === undefined) throw new Error("the fixture exists only during tests");
    return shared.fixture;
  };
}

export async function startApp(runtime: AppRuntime, app: RunnableApp): Promise<RunnableApp> {
  await runtime.prepare(app, {});
  await runtime.start(app);
  return app;
}

/** The error that `work` fails with. @throws AssertionError if it succeeds, or fails with another kind of error */
export async function failureOf(work: Promise<unknown>): Promise<SvcError> {
  const error: unknown = await work.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof SvcError, String(error));
  return error;
}
