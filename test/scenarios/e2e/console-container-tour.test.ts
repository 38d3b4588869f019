/** The commands of the guide about terminals, with an app in a container and a compose project. */
import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { composeTest, needsCompose } from "../../runtimes/support/compose-test.ts";
import { startDaemon, type TestDaemon } from "../../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import { whyNoDocker } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { linesAbout, typeLine } from "../../e2e/support/terminal-lines.ts";

const nobody = 65534;
const image = "example.org/tour:1";
const engineNow = sharedEngine();

test.before(async () => {
  if (whyNoDocker !== undefined) return;
  await engineNow().images.build(image, {
    entrypoint: ["/bin/sh", "-c", "echo it listens; read -r line; exec sleep 10000"],
    files: { "srv/of-the-image": "" },
    workdir: "/srv",
  });
});

/** A regular user installs and starts the app. */
async function startApp(
  daemon: TestDaemon,
  id: string,
  files: Readonly<Record<string, string>>,
): Promise<void> {
  const dir = join(daemon.dir, id);
  await mkdir(dir);
  for (const [name, text] of Object.entries(files)) await writeFile(join(dir, name), text);
  await using user = await daemon.as(nobody);
  const apps = user.client(AppService);
  await apps.installApp({ spec: dir });
  await apps.startApp({ id });
}

/** Types a line into `attach`, which exits with the app. */
async function attachLine(daemon: TestDaemon, line: string, id: string): Promise<void> {
  const typed = typeLine(daemon, line);
  await eventually(() => assert.match(typed.shown(), /it listens/), 60_000);
  await daemon.client(AppService).stopApp({ id });
  await typed.ended;
}

dockerTest(`the guide's commands for terminals work with a container${needsDocker}`, async (t) => {
  t.timeout(240_000);
  await using daemon = await startDaemon({ config: engineNow().config });
  const manifest = `id: hello\nname: Hello\nversion: "1"\nconsole: true\ndocker: { image: "${image}" }\n`;
  await startApp(daemon, "hello", { "svc.yaml": manifest });
  for (const line of await linesAbout("hello", 4)) {
    if (line.startsWith("svc app attach")) {
      await attachLine(daemon, line, "hello");
      continue;
    }
    const typed = typeLine(daemon, line);
    t.is(await typed.ended, 0, `${line}: ${typed.shown()}`);
    if (line.startsWith("echo ls")) t.is(typed.shown(), "of-the-image\n");
  }
  await daemon.client(AppService).removeApp({ id: "hello" });
});

composeTest(`the guide's commands for services work with a compose project${needsCompose}`, async (t) => {
  t.timeout(240_000);
  await using daemon = await startDaemon({ config: engineNow().config });
  const service = `{ image: "${image}", tty: true, stdin_open: true }`;
  await startApp(daemon, "team", {
    "svc.yaml": 'id: team\nname: Team\nversion: "1"\ncompose: { file: compose.yaml }\n',
    "compose.yaml": `services:\n  web: ${service}\n  api: ${service}\n`,
  });
  for (const line of await linesAbout("team", 2)) {
    if (line.startsWith("svc app attach")) {
      await attachLine(daemon, line, "team");
      continue;
    }
    const typed = typeLine(daemon, line);
    t.is(await typed.ended, 0, `${line}: ${typed.shown()}`);
    t.regex(typed.shown(), /^uid=/m);
  }
  await daemon.client(AppService).removeApp({ id: "team" });
});
