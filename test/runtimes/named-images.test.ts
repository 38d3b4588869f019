/** The image of somebody else is reached by no spelling of `image:` (threat 55); Dockerfiles have their own test. */
import { dockerTest, needsDocker } from "../support/docker-test.ts";

import { failureOf, sharedFixture } from "./support/container-tests.ts";
import { composeTest, needsCompose } from "./support/compose-test.ts";
import type { DockerFixture } from "./support/docker-fixture.ts";

const fixtureNow = sharedFixture();

/** Each of these leads the engine to an image that was built for somebody else. */
async function spellings({ engine }: DockerFixture): Promise<string[]> {
  const id = await engine.images.build("svc.local/others:1");
  return [
    id,
    id.slice(0, "sha256:".length + 12),
    id.toUpperCase().replace("SHA", "sha"),
    "svc.local/others:1",
  ];
}

dockerTest(`a user's package names no image by its id, and none that svc built${needsDocker}`, async (t) => {
  const fixture = fixtureNow();
  for (const image of await spellings(fixture)) {
    const app = await fixture.app("nosy", `docker: { image: "${image}" }`);
    t.is((await failureOf(fixture.runtime.prepare(app, {}))).reason, "denied", image);
  }
});

dockerTest(
  `nor does what its base image has done, or what the engine takes no note of${needsDocker}`,
  async (t) => {
    const fixture = fixtureNow();
    const { engine, runtime } = fixture;
    const digits = (await engine.images.build("svc.local/others:1")).slice("sha256:".length).slice(0, 12);
    await engine.images.build("svc/nosy-base:1", { triggers: [`COPY --from=${digits} / /stolen`] });
    await engine.images.build("svc/plain-base:1", { triggers: ["RUN true"] });
    const build = (base: string, args = "") =>
      fixture.app("built-on", `docker: { build: { args: {${args}} } }`, {
        files: { Dockerfile: `FROM ${base}\nCMD ["/bin/sleep", "3600"]\n` },
      });
    const failure = await failureOf(runtime.prepare(await build("svc/nosy-base:1"), {}));
    t.is(failure.reason, "denied", failure.message);
    t.regex(failure.message, /ONBUILD of svc\/nosy-base:1/);
    const proxied = await build("svc/plain-base:1", ' https_proxy: "http://127.0.0.1:1" ');
    t.is((await failureOf(runtime.prepare(proxied, {}))).reason, "denied");
    const messages: string[] = [];
    await runtime.prepare(await build("svc/plain-base:1"), {
      onProgress: ({ message }) => messages.push(message),
    });
    t.regex(messages.join("\n"), /FROM sha256:[0-9a-f]{64}/);
  },
);

composeTest(`nor does a service of a user's project${needsCompose}`, async (t) => {
  const fixture = fixtureNow();
  for (const image of await spellings(fixture)) {
    const files = { "compose.yaml": `services:\n  web:\n    image: "${image}"\n` };
    const app = await fixture.app("nosy-project", "compose: { file: compose.yaml }", { files });
    t.is((await failureOf(fixture.compose.prepare(app, {}))).reason, "denied", image);
  }
});

dockerTest(
  `an image that says too much of itself is not a user's to build, and is gone${needsDocker}`,
  async (t) => {
    const fixture = fixtureNow();
    const { engine, runtime } = fixture;
    await engine.images.build("svc/plain-base:2");
    const labels = Array.from({ length: 20 }, (_, at) => `LABEL l${at}=${"a".repeat(10_000)}`).join("\n");
    const app = await fixture.app("wordy", "docker: { build: {} }", {
      files: { Dockerfile: `FROM svc/plain-base:2\n${labels}\n` },
    });
    const error = await failureOf(runtime.prepare(app, {}));
    t.is(error.reason, "denied", error.message);
    t.regex(error.message, /^the image svc\.local\/wordy:\w+ is \d+ characters long/);
    const label = encodeURIComponent(JSON.stringify({ label: ["svc.app=wordy"] }));
    t.deepEqual((await engine.request("GET", `/images/json?filters=${label}`)).expect(200), []);
  },
);
