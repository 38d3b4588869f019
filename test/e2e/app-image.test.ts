/** `svc app image` and `svc app repull`, by a user without groups, with a registry that requires a password. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { CredentialService } from "../../gen/svc/v1/credential_pb.ts";
import { startDaemon } from "../support/daemon.ts";
import { registryUser } from "../support/docker-registry.ts";
import { dockerTest, needsDocker, sharedEngine } from "../support/docker-test.ts";
import { errorOf } from "../support/errors.ts";
import { main } from "../support/svc-main.ts";
import { freePort, writeFiles } from "../support/packages.ts";
import { composeTest, needsCompose } from "../runtimes/support/compose-test.ts";
import type { ImageContents } from "../support/docker-images.ts";

const nobody = 65_534;
const engineNow = sharedEngine();

dockerTest(
  `an image is current, then outdated, then pulled again, with the user's own credential${needsDocker}`,
  async (t) => {
    const engine = engineNow();
    const registry = await engine.registry(registryUser);
    const tag = `${registry.host}/web:latest`;
    await engine.images.build(tag, { labels: { n: "1" } });
    await engine.images.push(tag, registryUser);
    await engine.images.remove(tag);
    await using daemon = await startDaemon({ config: engine.config });
    await using user = await daemon.as(nobody);
    const apps = user.client(AppService);
    const dir = join(daemon.dir, "package");
    await writeFiles(dir, {
      "svc.yaml": `id: web\nname: Web\nversion: "1"\nsummary: Sleeps.\ndocker: { image: "${tag}" }\n`,
    });
    const svc = async (...args: string[]): Promise<string> => {
      const argv = [`--reuid=${nobody}`, `--regid=${nobody}`, "--clear-groups", "--", process.execPath, main];
      const options = { env: { PATH: process.env["PATH"] ?? "", HOME: "/nonexistent" } };
      const socket = ["--socket", daemon.socketPath];
      const { stdout } = await promisify(execFile)("setpriv", [...argv, ...args, ...socket], options);
      return stdout;
    };
    t.like(await errorOf(apps.installApp({ spec: dir })), { code: "NotFound" }, "no password yet");

    await user.client(CredentialService).upsertCredential({
      name: "registry",
      kind: "registry",
      host: registry.host,
      username: registryUser.name,
      secret: registryUser.password,
    });
    await apps.installApp({ spec: dir });
    await apps.startApp({ id: "web" });
    t.regex(await svc("app", "image", "web", "--check"), /Freshness: +current/);
    t.is(await svc("app", "repull", "web"), "web already has the newest image\n");

    await engine.images.build(tag, { labels: { n: "2" } });
    await engine.images.push(tag, registryUser);
    // Pushed from another host: the engine here still has the old one under the name.
    await engine.images.remove(tag);
    t.regex(await svc("app", "image", "web", "--check"), /Freshness: +(outdated|unknown)/);
    const before = (await apps.getApp({ id: "web" })).startedAt;
    t.is(await svc("app", "repull", "web"), "web has a new image and was restarted with it\n");
    t.regex(await svc("app", "image", "web", "--check"), /Freshness: +current/);
    const after = await apps.getApp({ id: "web" });
    t.is(after.state, "RUNNING");
    t.notDeepEqual(after.startedAt, before);
    const labelled = async (label: string): Promise<string[]> => {
      const filters = encodeURIComponent(JSON.stringify({ label: [label] }));
      const all = (await engine.request("GET", `/images/json?filters=${filters}`)).expect(200);
      return (all as { Id: string }[]).map(({ Id }) => Id);
    };
    t.deepEqual(await labelled("n=1"), [], "the previous image is gone");

    const [good = ""] = await labelled("n=2");
    await engine.images.tag(good, "test/kept:1");
    await engine.images.build(tag, { labels: { n: "3" }, cmd: ["/bin/sh", "-c", "exit 3"] });
    await engine.images.push(tag, registryUser);
    await engine.images.remove(tag);
    await engine.images.tag("test/kept:1", tag);
    await engine.images.remove("test/kept:1");
    const failure = await errorOf(apps.repullApp({ id: "web" }));
    t.like(failure, { reason: "start_failed" });
    t.regex(failure.message, /exited with code 3; it runs on its image before again/);
    t.is((await apps.getApp({ id: "web" })).state, "RUNNING");
    t.deepEqual(await labelled("n=2"), [good]);
    t.deepEqual(await labelled("n=3"), [], "the image that failed to start is gone, too");
    await apps.removeApp({ id: "web" });
  },
);

composeTest(
  `a repull of a project removes the previous images, and returns to them if its services fail to start on the new ones${needsCompose}`,
  async (t) => {
    const engine = engineNow();
    const registry = await engine.registry();
    const tag = `${registry.host}/part:latest`;
    const push = async (contents: ImageContents): Promise<string> => {
      const id = await engine.images.build(tag, contents);
      await engine.images.push(tag);
      return id;
    };
    const first = await push({ labels: { part: "1" } });
    await using daemon = await startDaemon({ config: engine.config });
    const apps = daemon.client(AppService);
    const dir = join(daemon.dir, "package");
    await writeFiles(dir, {
      "svc.yaml": `id: parts\nname: Parts\nversion: "1"\ncompose: { file: compose.yaml }\n`,
      "compose.yaml": `services:\n  a: { image: "${tag}" }\n  b: { image: "${tag}" }\n`,
    });
    await apps.installApp({ spec: dir });
    await apps.startApp({ id: "parts" });
    const labelled = async (path: string, label: string): Promise<{ ImageID: string; State: string }[]> => {
      const filters = encodeURIComponent(JSON.stringify({ label: [label] }));
      return (await engine.request("GET", `${path}filters=${filters}`)).expect(200) as [];
    };

    const good = await push({ labels: { part: "2" } });
    // Pushed from another host: the engine here still has the old one under the name.
    await engine.images.tag(first, tag);
    t.like(await apps.repullApp({ id: "parts" }), { changed: true, restarted: true });
    t.deepEqual(await labelled("/images/json?", "part=1"), []);
    t.is((await labelled("/containers/json?all=1&", "svc.app=parts")).length, 2);

    await push({ labels: { part: "3" }, cmd: ["/bin/sh", "-c", "exit 3"] });
    await engine.images.tag(good, tag);
    const failure = await errorOf(apps.repullApp({ id: "parts" }));
    t.like(failure, { reason: "start_failed" });
    t.regex(failure.message, /it runs on its images? before again/);
    t.is((await apps.getApp({ id: "parts" })).state, "RUNNING");
    const all = await labelled("/containers/json?all=1&", "svc.app=parts");
    t.deepEqual(
      all.map(({ ImageID, State }) => [ImageID, State]),
      [
        [good, "running"],
        [good, "running"],
      ],
    );
    await apps.removeApp({ id: "parts" });
  },
);

for (const [runtime, test, needs] of [
  ["docker", dockerTest, needsDocker],
  ["compose", composeTest, needsCompose],
] as const) {
  test(`an install of a ${runtime} app exits with 6 if a registry does not respond, with 3 without its image${needs}`, async (t) => {
    t.timeout(120_000);
    const engine = engineNow();
    const registry = await engine.registry();
    await using daemon = await startDaemon({ config: engine.config });
    const install = async (id: string, image: string): Promise<{ code?: unknown; stderr: string }> => {
      const dir = join(daemon.dir, id);
      const how = runtime === "docker" ? `docker: { image: "${image}" }` : "compose: { file: compose.yaml }";
      await writeFiles(dir, {
        "svc.yaml": `id: ${id}\nname: ${id}\nversion: "1"\n${how}\n`,
        ...(runtime === "compose" && { "compose.yaml": `services: { one: { image: "${image}" } }\n` }),
      });
      const argv = [main, "install", dir, "--socket", daemon.socketPath];
      return promisify(execFile)(process.execPath, argv).catch(
        (error: unknown) => error as { code: unknown; stderr: string },
      );
    };
    const silent = await install("silent", `127.0.0.1:${await freePort()}/away:1`);
    t.is(silent.code, 6, silent.stderr);
    const missing = await install("missing", `${registry.host}/nothing:1`);
    t.is(missing.code, 3, missing.stderr);
    t.deepEqual((await daemon.client(AppService).listApps({})).apps, []);
  });
}
