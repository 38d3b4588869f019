/** A user's project requests another platform's image under a name that others use, too. */
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { composeGenerations } from "../support/compose-generations.ts";
import { isRoot, needsRoot, startDaemon } from "../support/daemon.ts";
import { hostArchitecture } from "../support/docker-images.ts";
import { sharedEngine } from "../support/docker-test.ts";
import { whyNoDocker } from "../support/docker.ts";
import { errorOf } from "../support/errors.ts";
import { writeFiles } from "../support/packages.ts";

const engineNow = sharedEngine();
const second = composeGenerations.find(({ isClassic }) => !isClassic);
const missing = isRoot ? (second?.missing ?? "") : needsRoot;
const platformTest = whyNoDocker === undefined && missing === "" ? test : test.skip;
const other = hostArchitecture === "arm64" ? "amd64" : "arm64";
const listType = "application/vnd.docker.distribution.manifest.list.v2+json";
const manifestType = "application/vnd.docker.distribution.manifest.v2+json";

/** Gives `web:1` of the registry one image for each architecture. */
async function pushForBoth(host: string): Promise<void> {
  const { images } = engineNow();
  const manifests = [];
  for (const architecture of [hostArchitecture, other]) {
    const tag = `${host}/web:${architecture}`;
    await images.build(tag, { architecture });
    const digest = await images.push(tag);
    await images.remove(tag);
    const answer = await fetch(`http://${host}/v2/web/manifests/${digest}`, {
      headers: { accept: manifestType },
    });
    const { length: size } = await answer.bytes();
    manifests.push({ mediaType: manifestType, digest, size, platform: { architecture, os: "linux" } });
  }
  const { status } = await fetch(`http://${host}/v2/web/manifests/1`, {
    method: "PUT",
    headers: { "content-type": listType },
    body: JSON.stringify({ schemaVersion: 2, mediaType: listType, manifests }),
  });
  if (status !== 201) throw new Error(`the registry returns ${status}`);
}

platformTest(
  `a user's project does not assign another platform's image to an existing name${missing}`,
  async (t) => {
    t.timeout(240_000);
    const engine = engineNow();
    const { host } = await engine.registry();
    await pushForBoth(host);
    const path = `[apps]\npath = ${JSON.stringify(second?.dirs ?? [])}\n`;
    await using daemon = await startDaemon({ config: `${engine.config}\n${path}` });
    await using user = await daemon.as(65_534);
    const head = (id: string): string =>
      `id: ${id}\nname: ${id}\nversion: "1"\nsummary: Sleeps.\nstop: { grace: 1s }\n`;
    const roots = join(daemon.dir, "roots");
    await writeFiles(roots, { "svc.yaml": `${head("roots")}docker: { image: "${host}/web:1" }\n` });
    await daemon.client(AppService).installApp({ spec: roots });
    const architectureNow = async (): Promise<string> => {
      const answer = await engine.request("GET", `/images/${host}/web:1/json`);
      return (answer.expect(200) as { Architecture: string }).Architecture;
    };
    t.is(await architectureNow(), hostArchitecture);

    const users = join(daemon.dir, "users");
    await writeFiles(users, {
      "svc.yaml": `${head("users")}compose: { file: compose.yaml }\n`,
      "compose.yaml": `services: { web: { image: "${host}/web:1", platform: linux/${other} } }\n`,
    });
    await user.client(AppService).installApp({ spec: users });
    const refused = await errorOf(user.client(AppService).startApp({ id: "users" })).catch(() => undefined);
    t.is(await architectureNow(), hostArchitecture);
    t.regex(refused?.message ?? "", /does not (?:match|provide) the specified platform/);
    t.is((await daemon.client(AppService).startApp({ id: "roots" })).state, "RUNNING");
  },
);
