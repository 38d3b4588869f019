/** Rejected installs: the same code, reason and payload over every protocol, and nothing left behind. */
import { mkdir, readdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { protocolOf, protocols, startDaemon, type TestDaemon } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { freePort, writePackage, writeRepository } from "../support/packages.ts";

const emptyDaemon = sharedDaemon();

async function leavesNothing(t: ExecutionContext, daemon: TestDaemon): Promise<void> {
  t.deepEqual((await daemon.client(AppService).listApps({})).apps, []);
  t.deepEqual(await readdir(join(daemon.storeDir, "apps")), []);
  t.deepEqual(await readdir(join(daemon.storeDir, "run")), []);
}

test("a license must be acknowledged", async (t) => {
  const daemon = await emptyDaemon();
  const apps = daemon.client(AppService, protocolOf(import.meta.url));
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort(), { files: { "LICENSE.md": "Be kind.\n", COPYING: "Share.\n" } });
  const error = await errorOf(apps.installApp({ spec: dir }));
  t.like(error, { code: "FailedPrecondition", reason: "license_required" });
  t.deepEqual(
    error.payload.case === "licenseRequired" &&
      error.payload.value.licenses.map(({ name, text, sha256 }) => [name, text, sha256.length]),
    [
      ["COPYING", "Share.\n", 64],
      ["LICENSE.md", "Be kind.\n", 64],
    ],
  );
  await leavesNothing(t, daemon);
  t.is((await apps.installApp({ spec: dir, licenseAck: true })).state, "STOPPED");
});

test("an ID in two sources is ambiguous", async (t) => {
  await using daemon = await startDaemon({
    config: '[[sources]]\nname = "mine"\nurl = "./mine"\n[[sources]]\nname = "other"\nurl = "./other"\n',
  });
  for (const name of ["mine", "other"]) {
    await writePackage(join(daemon.dir, name, "web"), await freePort());
    await writeFile(
      join(daemon.dir, name, "index.yaml"),
      `packages:\n  web: { directory: web, name: Web of ${name}, summary: From ${name} }\n`,
    );
  }
  const apps = daemon.client(AppService, protocolOf(import.meta.url));
  const error = await errorOf(apps.installApp({ spec: "web" }));
  t.like(error, { code: "FailedPrecondition", reason: "ambiguous" });
  t.deepEqual(
    error.payload.case === "ambiguous" &&
      error.payload.value.candidates.map(({ spec, source }) => [spec, source]),
    [
      ["mine/web", "mine"],
      ["other/web", "other"],
    ],
  );
  await leavesNothing(t, daemon);
  t.is((await apps.installApp({ spec: "other/web" })).origin?.source, "other");
  t.is((await apps.installApp({ spec: "web", source: "mine" })).id, "web-2");
});

for (const protocol of protocols) {
  test(`a long license is shown with its first 64 KiB, over gRPC with what fits in trailers (${protocol})`, async (t) => {
    const daemon = await emptyDaemon();
    const apps = daemon.client(AppService, protocol);
    const dir = join(daemon.dir, "package");
    const text = "Do as you like. ".repeat(4096);
    const shown = protocol === "grpc" ? `${text.slice(0, 4095)}…` : text;
    await writePackage(dir, await freePort(), { files: { LICENSE: `${text}And more.\n` } });
    const calls: (Promise<unknown> | AsyncIterable<unknown>)[] = [apps.installApp({ spec: dir })];
    // REST has no route for svc's streams.
    if (protocol !== "rest") calls.push(apps.installAppStream({ spec: dir }));
    for (const call of calls) {
      const error = await errorOf(call);
      t.like(error, { code: "FailedPrecondition", reason: "license_required" });
      const [license] = error.payload.case === "licenseRequired" ? error.payload.value.licenses : [];
      t.is(license?.text, shown);
      t.is(license?.sha256.length, 64);
    }
    await leavesNothing(t, daemon);
  });
}

test("a failed build leaves nothing and shows its last lines", async (t) => {
  const daemon = await emptyDaemon();
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  const manifest = `id: broken
name: Broken
version: "1.0.0"
process:
  exec: [node, server.mjs]
  build:
    - exec: [sh, -c, "echo step one"]
    - exec: [sh, -c, "echo about to fail; echo on stderr >&2; exit 7"]
`;
  await writeFile(join(dir, "svc.yaml"), manifest);
  const error = await errorOf(
    daemon.client(AppService, protocolOf(import.meta.url)).installApp({ spec: dir }),
  );
  t.like(error, { code: "FailedPrecondition", reason: "build_failed" });
  t.true(error.payload.case === "commandFailed" && error.payload.value.exitCode === 7);
  t.true(error.payload.case === "commandFailed" && error.payload.value.lastLines.includes("about to fail"));
  await leavesNothing(t, daemon);
});

const bad: Readonly<Record<string, { request: object; reason: string; field?: string }>> = {
  "no spec": { request: {}, reason: "invalid_request", field: "spec" },
  "an over-long spec": { request: { spec: "x".repeat(2049) }, reason: "invalid_request", field: "spec" },
  "branch and tag": {
    request: { spec: "https://example.invalid/x.git", branch: "a", tag: "b" },
    reason: "invalid_request",
    field: "tag",
  },
  "an unknown id": { request: { spec: "nothing-of-that-name" }, reason: "not_found" },
  "a remote helper": { request: { spec: "ext::sh -c id" }, reason: "invalid_request", field: "spec" },
  "an option": { request: { spec: "--upload-pack=id" }, reason: "invalid_request", field: "spec" },
  "a missing directory": { request: { spec: "/nonexistent/package" }, reason: "no_manifest" },
};

for (const [name, { request, reason, field }] of Object.entries(bad)) {
  test(`${name} is rejected`, async (t) => {
    const daemon = await emptyDaemon();
    for (const protocol of protocols) {
      const error = await errorOf(daemon.client(AppService, protocol).installApp(request));
      t.is(error.reason, reason, `${protocol}: ${error.message}`);
      if (field !== undefined) {
        const fields =
          error.payload.case === "invalidRequest" ? error.payload.value.violations.map((v) => v.field) : [];
        t.true(fields.includes(field), `${protocol}: ${String(fields)}`);
      }
    }
    await leavesNothing(t, daemon);
  });
}

test("settings that the package rejects prevent its installation", async (t) => {
  const daemon = await emptyDaemon();
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  const error = await errorOf(
    daemon.client(AppService).installApp({ spec: dir, settings: { port: 70_000, nothing: 1 } }),
  );
  t.is(error.reason, "invalid_request");
  await leavesNothing(t, daemon);
});

test("branch and tag select the version", async (t) => {
  const daemon = await emptyDaemon();
  const port = await freePort();
  const apps = daemon.client(AppService);
  const spec = await writeRepository(join(daemon.dir, "web.git"), port, [
    { version: "1.0.0" },
    { version: "1.2.0" },
    { version: "2.0.0-rc.1" },
  ]);
  t.is((await apps.installApp({ spec })).version, "v1.2.0", "the newest, and not a pre-release");
  t.is((await apps.installApp({ spec, tag: "v1.0.0" })).version, "v1.0.0");
  const tracked = await apps.installApp({ spec, branch: "main" });
  t.like(tracked.origin, { branch: "main", tag: "" });
  t.regex(tracked.version, /^[0-9a-f]{7,12}$/);
  t.like(await apps.upgradeApp({ id: tracked.id }), { upToDate: true });
  t.like(await apps.upgradeApp({ id: "web-2", version: "v1.2.0" }), { from: "v1.0.0", to: "v1.2.0" });
  t.deepEqual(
    (await apps.listApps({})).apps.map(({ id }) => id),
    ["web", "web-2", "web-3"],
  );
});

test("a package that needs systemd explains it on hosts without systemd", async (t) => {
  const daemon = await emptyDaemon();
  const dir = join(daemon.dir, "package");
  await mkdir(dir);
  await writeFile(
    join(dir, "svc.yaml"),
    'id: box\nname: Box\nversion: "1"\nservice: { unit: box.service }\n',
  );
  await writeFile(join(dir, "box.service"), "[Service]\nExecStart=/bin/true\n");
  t.like(await errorOf(daemon.client(AppService).installApp({ spec: dir })), {
    code: "FailedPrecondition",
    reason: "not_possible",
  });
  await leavesNothing(t, daemon);
});

test("a package without settings has a null schema and rejects any value", async (t) => {
  const daemon = await emptyDaemon();
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort(), {
    files: { "svc.yaml": 'id: plain\nname: Plain\nversion: "1"\nprocess: { exec: [node, server.mjs] }\n' },
  });
  for (const protocol of protocols) {
    const apps = daemon.client(AppService, protocol);
    const { id } = await apps.installApp({ spec: dir });
    const { schema, values } = await apps.getAppSettings({ id });
    t.is(schema?.kind.case, "nullValue", protocol);
    t.deepEqual(values, {}, protocol);
    t.is(
      (await errorOf(apps.updateAppSettings({ id, values: { a: 1 } }))).reason,
      "invalid_request",
      protocol,
    );
    // An app that does not run as a container has no image.
    t.deepEqual(
      { ...(await apps.getAppImage({ id })), $typeName: "" },
      { $typeName: "", services: [] } as never,
      protocol,
    );
    t.is((await errorOf(apps.repullApp({ id }))).reason, "pinned_image", protocol);
  }
});

test("a license that is a link must be acknowledged, too", async (t) => {
  const daemon = await emptyDaemon();
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort(), { files: { "legal.txt": "Be kind.\n" } });
  await symlink("legal.txt", join(dir, "LICENSE"));
  t.is((await errorOf(daemon.client(AppService).installApp({ spec: dir }))).reason, "license_required");
  await leavesNothing(t, daemon);
});
