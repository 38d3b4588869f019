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

composeTest(`nor does a service of a user's project${needsCompose}`, async (t) => {
  const fixture = fixtureNow();
  for (const image of await spellings(fixture)) {
    const files = { "compose.yaml": `services:\n  web:\n    image: "${image}"\n` };
    const app = await fixture.app("nosy-project", "compose: { file: compose.yaml }", { files });
    t.is((await failureOf(fixture.compose.prepare(app, {}))).reason, "denied", image);
  }
});
