/** A daemon exports a compose project, and compose itself runs the export without svc. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { ExportAppRequestTos } from "../../../gen/svc/v1/values.ts";
import { runSvc } from "../../cli/support/run-svc.ts";
import { composeTest, needsCompose } from "../../runtimes/support/compose-test.ts";
import { startDaemon } from "../../support/daemon.ts";
import { sharedEngine } from "../../support/docker-test.ts";
import { whyNoDocker } from "../../support/docker.ts";
import { eventually } from "../../support/eventually.ts";
import { freePort, writeFiles } from "../../support/packages.ts";

const run = promisify(execFile);
const engineNow = sharedEngine();
const secret = "open-sesame";
const deadlineMs = 60_000;

test.before(async () => {
  if (whyNoDocker !== undefined) return;
  const serve = `mkdir -p /tmp/www; cp /etc/page /tmp/www/index.html; echo "$WORD" > /tmp/www/word; trap 'exit 0' TERM; httpd -f -p 8080 -h /tmp/www & wait`;
  await engineNow().images.build("svc/page:1", { cmd: ["/bin/sh", "-c", serve] });
});

composeTest(`an exported project runs elsewhere and lists what is missing${needsCompose}`, async (t) => {
  t.timeout(240_000);
  const engine = engineNow();
  await using daemon = await startDaemon({ config: engine.config });
  const [port, spec] = [await freePort(), join(daemon.dir, "package")];
  await writeFiles(spec, {
    "svc.yaml": `id: shop
name: shop
version: "1"
compose: { file: compose.yaml }
settings:
  properties:
    port: { type: integer, default: 1, env: PORT }
    word: { type: string, secret: true, env: WORD }
ports: [{ name: http, setting: port }]
`,
    "page.html": "moin $WORD\n",
    "compose.yaml": `
services:
  web:
    image: svc/page:1
    ports: ["127.0.0.1:\${PORT}:8080"]
    environment: { WORD: "\${WORD}" }
    volumes: ["./page.html:/etc/page:ro", "./written:/written", "kept:/kept"]
    depends_on: [other]
  other:
    image: svc/page:1
    command: ["/bin/sh", "-c", "cp /etc/hosts /tmp; trap 'exit 0' TERM; sleep 3600 & wait"]
volumes: { kept: {} }
`,
  });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec, settings: { port, word: secret } });
  for (const to of ExportAppRequestTos) {
    const exported = await apps.exportApp({ id: "shop", to });
    const text = JSON.stringify(exported.files.map(({ name, content }) => ({ name, content })));
    t.false(text.includes(secret), to);
    t.false(text.includes(daemon.storeDir), to);
    t.true(text.includes("moin $WORD"), to);
    t.true(
      exported.notes.some((note) => note.includes('the secret "word" is not exported')),
      to,
    );
  }
  // The app that runs here still has its secret.
  await apps.startApp({ id: "shop" });
  const page = async (path: string): Promise<string> =>
    (await (await fetch(`http://127.0.0.1:${port}/${path}`)).text()).trim();
  await eventually(async () => assert.equal(await page("word"), secret), deadlineMs);
  await apps.stopApp({ id: "shop" });

  const elsewhere = await mkdtemp(join(tmpdir(), "svc-elsewhere-"));
  const compose = async (...args: string[]): Promise<string> => {
    const env = {
      PATH: process.env["PATH"] ?? "",
      HOME: elsewhere,
      DOCKER_HOST: `unix://${engine.socket}`,
    };
    const [program = "", ...first] = (await hasPlugin()) ? ["docker", "compose"] : ["docker-compose"];
    return (await run(program, [...first, "-p", "elsewhere", ...args], { cwd: join(elsewhere, "shop"), env }))
      .stdout;
  };
  try {
    const host = { home: elsewhere, uid: process.getuid?.() ?? 0 };
    const args = ["-H", `unix://${daemon.socketPath}`, "app", "export", "shop", "--to", "compose"];
    const unplaced = await runSvc(args, { host });
    t.is(unplaced.exitCode, 2, unplaced.stderr);
    t.regex(unplaced.stderr, /choose a directory with --output/);
    const written = await runSvc([...args, "-o", join(elsewhere, "shop")], { host });
    t.is(written.exitCode, 0, written.stderr);
    t.regex(written.stderr, /Note: the secret "word" is not exported; set WORD in .env/);
    await t.throwsAsync(compose("up", "--detach"), { message: /set WORD/ });
    const file = join(elsewhere, "shop/.env");
    t.is(await readFile(file, "utf8"), "WORD=\n");
    await writeFile(file, "WORD=another\n");
    await compose("up", "--detach");
    await eventually(async () => assert.equal(await page("word"), "another"), deadlineMs);
    t.is(await page(""), "moin $WORD");
    const listed = (await engine.request("GET", "/containers/json")).expect(200) as { Labels: object }[];
    t.is(listed.length, 2);
    for (const { Labels } of listed)
      t.deepEqual(
        Object.keys(Labels).filter((name) => /^svc\./.test(name)),
        [],
      );
    await compose("down", "--volumes", "--timeout", "1");
    const { Volumes } = (await engine.request("GET", "/volumes")).expect(200) as {
      Volumes: { Labels: object }[];
    };
    t.is(Volumes.filter(({ Labels }) => "svc.app" in Labels).length, 1, "the app's own volume");
  } finally {
    await compose("down", "--volumes", "--timeout", "1").catch(() => undefined);
    await rm(elsewhere, { recursive: true, force: true });
  }
});

composeTest(`a secret whose value is in .env is not exported${needsCompose}`, async (t) => {
  t.timeout(120_000);
  await using daemon = await startDaemon({ config: engineNow().config });
  const spec = join(daemon.dir, "package");
  await writeFiles(spec, {
    "svc.yaml": `id: wiki
name: wiki
version: "1"
compose: { file: compose.yaml }
settings: { properties: { word: { type: string, secret: true, env: WORD } } }
`,
    ".env": `WORD=${secret}\n`,
    "compose.yaml": `services: { web: { image: "svc/page:1", environment: { WORD: "\${WORD}" } } }\n`,
  });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec });
  for (const to of ExportAppRequestTos) {
    const { files, notes } = await apps.exportApp({ id: "wiki", to });
    t.false(JSON.stringify(files.map(({ content }) => content)).includes(secret), to);
    t.true(
      notes.some((note) => note.includes('the secret "word" is not exported')),
      to,
    );
  }
});

async function hasPlugin(): Promise<boolean> {
  return run("docker", ["compose", "version"]).then(
    () => true,
    () => false,
  );
}
