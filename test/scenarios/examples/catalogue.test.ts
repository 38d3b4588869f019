/**
 * Each program of the catalog is installed, started and upgraded. Programs that are built locally are the real ones
 * (with `SVC_LONG=1` also those of npm and PyPI). Tests cannot pull images, so a stand-in has the name of each, stores
 * data in the same volumes, and responds on the same port and path.
 */
import assert from "node:assert/strict";
import { cp, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { parse } from "yaml";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { settingsOf, type Manifest } from "../../../src/packages/manifest/manifest.ts";
import { parseManifest } from "../../packages/support/manifests.ts";
import { composeTest, needsCompose } from "../../runtimes/support/compose-test.ts";
import { startDaemon, type TestDaemon } from "../../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import { whyNoDocker } from "../../support/docker.ts";
import { readPage } from "../../support/docs.ts";
import { eventually } from "../../support/eventually.ts";
import { freePort } from "../../support/packages.ts";

const examples = join(import.meta.dirname, "../../../examples");
const index = parse(await readFile(join(examples, "index.yaml"), "utf8")) as {
  packages: Record<string, { directory: string; runtime: string }>;
};
const engineNow = sharedEngine();
const startMs = 120_000;
/** Values of required settings without a default. */
const given = "Secret0123456789";
const nextVersion = "9999.0.0";

const shared: { daemon?: TestDaemon } = {};
test.before(async () => {
  shared.daemon = await startDaemon(whyNoDocker === undefined ? { config: engineNow().config } : {});
});
test.after.always(() => shared.daemon?.[Symbol.asyncDispose]());

const typeOfTest = {
  docker: { run: dockerTest, needs: needsDocker },
  compose: { run: composeTest, needs: needsCompose },
  process: { run: test, needs: "" },
};

for (const [id, { directory, runtime }] of Object.entries(index.packages)) {
  const isBuilt = runtime === "process" && id !== "hello";
  const { run, needs } = typeOfTest[runtime as keyof typeof typeOfTest];
  const isLeftOut = isBuilt && process.env["SVC_LONG"] !== "1";
  const title = `${id} is installed, starts, is healthy and keeps its data over an upgrade`;
  (isLeftOut ? test.skip : run)(
    `${title}${needs}${isLeftOut ? " (SVC_LONG=1: what it is made of is fetched)" : ""}`,
    async (t) => {
      // Downloads happen twice, also for the upgrade.
      t.timeout((isBuilt ? 30 : 10) * 60_000);
      assert.ok(shared.daemon);
      const apps = shared.daemon.client(AppService);
      const spec = join(shared.daemon.dir, "catalogue", id);
      await mkdir(join(spec, ".."), { recursive: true });
      await cp(join(examples, directory), spec, { recursive: true });
      const program = await programOf(spec);
      await makeImages(program);
      const port = await freePort();
      const settings = { ...requiredOf(program.manifest), port };
      await apps.installApp({ spec, settings, licenseAck: true });
      const { directory: home } = await apps.getApp({ id });
      const url = `http://127.0.0.1:${port}`;
      const expectUp = async (): Promise<void> => {
        await apps.startApp({ id });
        await eventually(async () => {
          const { state, health } = await apps.getApp({ id });
          assert.deepEqual([state, health], ["RUNNING", "healthy"]);
        }, startMs);
      };
      await expectUp();
      await requireKnows(t, program, url, settings);
      if (runtime === "process") await writeFile(join(home, "data/kept"), "kept");
      const before = await keptIn(program, url);

      await renew(spec, program.manifest.version);
      await makeImages(await programOf(spec));
      await apps.upgradeApp({ id, stopApp: true });
      t.is((await apps.getApp({ id })).version, nextVersion);
      await expectUp();
      const after = await keptIn(program, url);
      for (const [volume, starts] of before) {
        t.true(starts > 0, volume);
        t.true((after.get(volume) ?? 0) > starts, `${volume} still has the data of the previous version`);
      }
      if (runtime === "process") t.is(await readFile(join(home, "data/kept"), "utf8"), "kept");
      await apps.stopApp({ id });
      await apps.removeApp({ id });
    },
  );
}

test("the packages page states for each program of the catalog how it is tested", async (t) => {
  const rows = [...(await readPage("docs/packages.md")).matchAll(/^\| `([a-z-]+)` \| ([a-z]+) \| .+ \|$/gm)];
  t.deepEqual(
    rows.map(([, id = "", runtime = ""]) => [id, runtime]),
    Object.entries(index.packages).map(([id, { runtime }]) => [id, runtime]),
  );
});

interface Service {
  readonly image: string;
  readonly port: number | undefined;
  /** Paths of its volumes. */
  readonly places: readonly string[];
}

interface Program {
  readonly manifest: Manifest;
  /** The app's containers; empty for a process. */
  readonly services: readonly Service[];
}

interface ComposeFile {
  services: Record<string, { image: string; ports?: string[]; volumes?: string[] }>;
}

async function programOf(dir: string): Promise<Program> {
  const manifest = await parseManifest(await readFile(join(dir, "svc.yaml"), "utf8"));
  const { runtime, ports, volumes } = manifest;
  if (runtime.kind === "docker") {
    const places = volumes.map(({ path }) => path);
    return { manifest, services: [{ image: runtime.image ?? "", port: ports[0]?.containerPort, places }] };
  }
  if (runtime.kind !== "compose") return { manifest, services: [] };
  const { services } = parse(await readFile(join(dir, runtime.file), "utf8")) as ComposeFile;
  return {
    manifest,
    services: Object.values(services).map(({ image, ports: published = [], volumes: mounts = [] }) => ({
      image,
      port: published.map((each) => Number(each.split(":").at(-1)))[0],
      places: mounts.map((each) => each.split(":")[1] ?? ""),
    })),
  };
}

/** The stand-in for each image. */
async function makeImages({ manifest, services }: Program): Promise<void> {
  const { probe } = manifest.health ?? {};
  const path = probe?.kind === "http" ? probe.path : "/";
  for (const { image, port, places } of services) {
    const script = [
      "trap 'exit 0' TERM INT",
      `for place in ${places.join(" ")}; do mkdir -p $place; echo started >> $place/starts; done`,
      `mkdir -p "$(dirname /www${path}x)" /www/stand-in; echo healthy > "/www${path === "/" ? "/index.html" : path}"`,
      "env > /www/stand-in/env",
      ...places.map((place, at) => `cp ${place}/starts /www/stand-in/${at}`),
      port === undefined ? "sleep infinity & wait" : `httpd -f -p ${port} -h /www & wait`,
    ];
    await engineNow().images.build(image, {
      entrypoint: ["/bin/sh", "/stand-in"],
      // The command that compose uses to check the database.
      files: { "stand-in": script.join("\n"), "bin/pg_isready": "#!/bin/sh\nexit 0\n" },
    });
  }
}

/** Settings required for its installation. */
function requiredOf({ settings }: Manifest): Record<string, string> {
  return Object.fromEntries((settings?.required ?? []).map((name) => [name, given]));
}

/** The user's settings appear where the program reads them. */
async function requireKnows(
  t: ExecutionContext,
  { manifest, services }: Program,
  url: string,
  settings: Readonly<Record<string, unknown>>,
): Promise<void> {
  if (services.length === 0) return void t.is((await fetch(url)).status, 200);
  const lines = (await (await fetch(`${url}/stand-in/env`)).text()).split("\n");
  const isCompose = manifest.runtime.kind === "compose";
  for (const [name, { env, default: preset }] of settingsOf(manifest)) {
    const value = settings[name] ?? preset;
    // A compose file sets defaults for them; an empty one is not passed.
    if (env === undefined || value === "" || (isCompose && env !== "ADMIN_PASSWORD")) continue;
    t.true(lines.includes(`${env}=${String(value)}`), `${name}: ${lines.join(" ")}`);
  }
}

/** The number of starts with each volume. */
async function keptIn({ manifest, services }: Program, url: string): Promise<Map<string, number>> {
  const counted = new Map<string, number>();
  const countOf = (text: string): number => text.split("started").length - 1;
  for (const { port, places } of services) {
    for (const [at, place] of places.entries())
      if (port !== undefined)
        counted.set(place, countOf(await (await fetch(`${url}/stand-in/${at}`)).text()));
  }
  if (manifest.runtime.kind !== "compose") return counted;
  const { Volumes: volumes } = (await engineNow().request("GET", "/volumes")).expect(200) as {
    Volumes: { Name: string }[];
  };
  // The settings that have no prompt.
  for (const { Name } of volumes) {
    const file = join(engineNow().data, "volumes", Name, "_data/starts");
    if (Name.includes(manifest.id)) counted.set(Name, countOf(await readFile(file, "utf8")));
  }
  return counted;
}

/** Like its author: sets the version of the manifest and of the images named after it. */
async function renew(dir: string, version: string): Promise<void> {
  for (const name of ["svc.yaml", "compose.yaml"]) {
    const text = await readFile(join(dir, name), "utf8").catch(() => undefined);
    if (text !== undefined) await writeFile(join(dir, name), text.replaceAll(version, nextVersion));
  }
}
