/** A user pulls an image with a name that another owner's app runs. */
import { join } from "node:path";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../support/docker-test.ts";
import { writeFiles } from "../support/packages.ts";

const engineNow = sharedEngine();

async function install(daemon: TestDaemon, by: Pick<TestDaemon, "client">, id: string, image: string) {
  const dir = join(daemon.dir, id);
  const head = `id: ${id}\nname: ${id}\nversion: "1"\nstop: { grace: 1s }\n`;
  await writeFiles(dir, { "svc.yaml": `${head}docker: { image: "${image}" }\n` });
  const apps = by.client(AppService);
  await apps.installApp({ spec: dir });
  await apps.startApp({ id });
}

dockerTest(`a user's first start does not move a tag that root's app runs${needsDocker}`, async (t) => {
  const engine = engineNow();
  const { host } = await engine.registry();
  const image = `${host}/web:1`;
  const old = await engine.images.build(image, { labels: { release: "old" } });
  await engine.images.push(image);
  await engine.images.build(`${host}/web:next`, { labels: { release: "new" } });
  await using daemon = await startDaemon({ config: engine.config });
  await using user = await daemon.as(65_534);
  await install(daemon, daemon, "roots", image);
  // The registry moves its tag, and the engine keeps the old image.
  await engine.images.tag(`${host}/web:next`, image);
  await engine.images.push(image);
  await engine.images.remove(`${host}/web:next`);
  await engine.images.tag(old, image);

  await install(daemon, user, "users", image);
  const named = (await engine.request("GET", `/images/${image}/json`)).expect(200) as { Id: string };
  t.is(named.Id, old);
  t.is((await daemon.client(AppService).restartApp({ id: "roots" })).state, "RUNNING");
});
