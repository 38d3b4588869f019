/** Health checks of regular users' images. */
import { composeTest, needsCompose } from "../../runtimes/support/compose-test.ts";
import { failureOf, sharedFixture, startApp } from "../../runtimes/support/container-tests.ts";
import { dockerTest, needsDocker } from "../../support/docker-test.ts";

const fixtureNow = sharedFixture();
const files = {
  Dockerfile: "FROM svc/shell:1\nHEALTHCHECK --interval=10ms CMD true\n",
  "long/Dockerfile": `FROM svc/shell:1\nHEALTHCHECK CMD true ${"a".repeat(4_096)}\n`,
  "compose.yaml": "services: { web: { build: . } }\n",
  "calm.yaml": "services: { web: { build: ., healthcheck: { interval: 2s } } }\n",
  "off.yaml": "services: { web: { build: ., healthcheck: { disable: true } } }\n",
};

dockerTest(
  `an image of a user checks its health at most once per second, with a short command${needsDocker}`,
  async (t) => {
    const fixture = fixtureNow();
    const { runtime } = fixture;
    const app = await fixture.app("eager", "docker: { build: {} }", { files });
    const error = await failureOf(startApp(runtime, app));
    t.is(error.reason, "denied");
    t.regex(error.message, /^the image svc\.local\/eager:\w+ checks its health every 0\.01s/);
    const long = await fixture.app("long", "docker: { build: { context: long } }", { files });
    t.regex((await failureOf(startApp(runtime, long))).message, /has a health check of \d+ bytes \("test"\)/);
    const calm = await fixture.app(
      "calm",
      "docker: { build: {} }\nhealth: { exec: [/bin/true], interval: 2s }",
      { files },
    );
    await startApp(runtime, calm);
    t.is(runtime.status("calm")?.state, "RUNNING");
    await runtime.stop(calm);
    await runtime.remove(calm);
  },
);

composeTest(
  `an image of a user's service checks its health at most once per second${needsCompose}`,
  async (t) => {
    const fixture = fixtureNow();
    const app = await fixture.app("eager-project", "compose: { file: compose.yaml }", { files });
    const error = await failureOf(startApp(fixture.compose, app));
    t.is(error.reason, "denied");
    t.regex(error.message, /checks its health every 0\.01s/);
    for (const name of ["calm", "off"]) {
      const other = await fixture.app(`${name}-project`, `compose: { file: ${name}.yaml }`, { files });
      await startApp(fixture.compose, other);
      t.is(fixture.compose.status(other.id)?.state, "RUNNING");
      await fixture.compose.stop(other);
      await fixture.compose.remove(other);
    }
  },
);
