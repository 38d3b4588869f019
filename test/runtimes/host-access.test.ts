/** The access of apps to the host: permissions, clocks, devices, and published ports. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import test from "ava";
import { readServicePort, withHostPorts } from "../../src/runtimes/compose/service-ports.ts";
import type { ContainerClaims } from "../../src/runtimes/containers/container-policy.ts";
import { missingClockFiles } from "../../src/runtimes/containers/host-clock.ts";
import type { AppRuntime } from "../../src/runtimes/contract.ts";
import { containerConfig } from "../../src/runtimes/docker/container-config.ts";
import type { RunnableApp } from "../../src/runtimes/runnable-app.ts";
import { dockerTest, needsDocker } from "../support/docker-test.ts";
import { eventually } from "../support/eventually.ts";
import { ownershipIn } from "../support/ownership.ts";
import { freePort } from "../support/packages.ts";
import { composeTest, needsCompose } from "./support/compose-test.ts";
import { failureOf, forever, sharedFixture, startApp } from "./support/container-tests.ts";
import { type DockerFixture } from "./support/docker-fixture.ts";
import { nobody, policyDirectory } from "./support/policy-app.ts";

// All denied permissions are listed at once, with the users who may grant them; the host's time is readable for
// everybody.

const fixtureNow = sharedFixture();

const claims = (name: string, more: Partial<ContainerClaims>): ContainerClaims => ({
  ...{ subject: `service "${name}"`, requirements: [], binds: [], hostPorts: [] },
  ...more,
});
const greedy = [
  claims("a", { requirements: [{ permission: "privileged", what: "runs privileged" }] }),
  claims("b", { binds: [{ source: "/srv/media", readOnly: true }] }),
];

test("an error lists all denied permissions, and who could grant them", async (t) => {
  await using place = await policyDirectory();
  t.is(
    await place.verdict(greedy, nobody),
    'service "a" runs privileged; service "b" mounts /srv/media, which is outside the app\'s directory, ' +
      "which only root's own apps may do; leave it out, or have root install the app",
  );
});

test("root's error lists all missing permissions", async (t) => {
  await using place = await policyDirectory();
  t.regex(await place.verdict(greedy, 0), /; add "privileged", "host_mounts" to the manifest's permissions$/);
  t.regex(await place.verdict(greedy, 0, ["privileged"]), /^service "b" .*; add "host_mounts" to/);
  t.is(await place.verdict(greedy, 0, ["privileged", "host_mounts"]), "allowed");
});

for (const source of ["/etc/localtime", "/etc/timezone"]) {
  test(`${source} may be read by everybody, and written by nobody`, async (t) => {
    await using place = await policyDirectory();
    for (const owner of [0, nobody]) {
      t.is(await place.verdict([claims("a", { binds: [{ source, readOnly: true }] })], owner), "allowed");
      t.not(await place.verdict([claims("a", { binds: [{ source, readOnly: false }] })], owner), "allowed");
    }
  });
}

test("a permission includes narrower ones", async (t) => {
  await using place = await policyDirectory();
  for (const [narrow, wide] of [
    ["gpu", "devices"],
    ["groups", "privileged"],
    ["networks", "host_network"],
  ] as const) {
    const asking = [claims("a", { requirements: [{ permission: narrow, what: "asks" }] })];
    t.is(await place.verdict(asking, 0, [wide]), "allowed");
    const asksMore = [claims("a", { requirements: [{ permission: wide, what: "asks" }] })];
    t.not(await place.verdict(asksMore, 0, [narrow]), "allowed");
  }
});

async function lineOf(runtime: AppRuntime, app: RunnableApp): Promise<string> {
  return eventually(async () => {
    const { lines } = await runtime.logs(app, { tail: 10 });
    assert.ok(lines[0] !== undefined, "it has said nothing yet");
    return lines[0].text;
  }, 30_000);
}

async function end(runtime: AppRuntime, app: RunnableApp): Promise<void> {
  await runtime.stop(app);
  await runtime.remove(app);
}

const files = ["/etc/localtime", "/etc/timezone"];

/** The content of an image of a distribution at this path. */
const linked = "FROM svc/shell:1\nRUN ln -s /usr/share/zoneinfo/Etc/UTC /etc/localtime\n";

dockerTest(`a user's container sees the host's time zone${needsDocker}`, async (t) => {
  const fixture = fixtureNow();
  const { runtime } = fixture;
  const missing = await missingClockFiles();
  const there = files.filter((path) => !missing.has(path));
  const mounts = files.map((path) => `{ source: ${path}, target: ${path}, read_only: true }`).join(", ");
  const say = `cat ${there.join(" ")} | md5sum; ${forever}`;
  const app = await fixture.app(
    "clock",
    `docker: { build: {}, entrypoint: [/bin/sh, -c], command: [${JSON.stringify(say)}], mounts: [${mounts}] }`,
    { files: { Dockerfile: linked } },
  );
  await startApp(runtime, app);
  const digest = createHash("md5");
  for (const path of there) digest.update(await readFile(path));
  t.is(await lineOf(runtime, app), `${digest.digest("hex")}  -`);
  t.like(runtime.status(app.id), { state: "RUNNING", reason: "" });
  await end(runtime, app);
});

test("a missing file of the host's clock is skipped, a writable mount is not", async (t) => {
  await using place = await policyDirectory();
  const sourcesOf = (readOnly: boolean): string[] => {
    const app = place.app(nobody);
    const { runtime } = app.manifest;
    if (runtime.kind !== "docker") throw new Error("the app is a container");
    const mounts = files.map((source) => ({ source, target: source, read_only: readOnly }));
    const options = {
      ...{
        imageId: "sha256:1",
        imageReference: "a",
        owner: { uid: nobody, gid: nobody },
        ownership: ownershipIn("test"),
      },
      ...{
        network: "net",
        usersPidsLimit: 1,
        maxUserProcesses: 1,
        publishAddress: "127.0.0.1",
        absent: new Set(["/etc/timezone"]),
      },
    };
    const config = containerConfig(
      { ...app, manifest: { ...app.manifest, runtime: { ...runtime, mounts } } },
      options,
    );
    return (config.options.HostConfig.Mounts ?? []).map(({ Source }) => Source);
  };
  t.deepEqual(sourcesOf(true), ["/etc/localtime"]);
  t.deepEqual(sourcesOf(false), files);
});

dockerTest(`root's container joins groups and has its devices${needsDocker}`, async (t) => {
  const fixture = fixtureNow();
  const say = `id -G; test -c /dev/net/tun && echo tunnel; ${forever}`;
  const manifest = `docker: { image: "svc/shell:1", entrypoint: [/bin/sh, -c], command: [${JSON.stringify(say)}],
  groups: [44, 109], devices: [/dev/net/tun] }`;
  await t.throwsAsync(() => fixture.app("grouped", manifest, { uid: 0 }), {
    message: /add "tun" to permissions/,
  });
  const app = await fixture.app("grouped", `${manifest}\npermissions: [groups, tun]`, { uid: 0 });
  await startApp(fixture.runtime, app);
  t.is(await lineOf(fixture.runtime, app), "0 44 109");
  const { lines } = await fixture.runtime.logs(app, { tail: 10 });
  t.is(lines[1]?.text, "tunnel");
  await end(fixture.runtime, app);
});

composeTest(`root's services join groups and have their devices${needsCompose}`, async (t) => {
  const fixture = fixtureNow();
  const { compose } = fixture;
  const say = `id -G; test -c /dev/net/tun && echo tunnel; ${forever}`.replaceAll("$", "$$$$");
  const document = `services:
  web: { image: svc/shell:1, command: [/bin/sh, -c, ${JSON.stringify(say)}], network_mode: none,
    group_add: ["44", "109"], devices: ["/dev/net/tun:/dev/net/tun"] }
`;
  const make = (permissions: string): Promise<RunnableApp> =>
    fixture.app("joined", `compose: { file: compose.yaml }\npermissions: [${permissions}]`, {
      uid: 0,
      files: { "compose.yaml": document },
    });
  const refused = await failureOf(compose.prepare(await make(""), {}));
  t.regex(refused.message, /; add "tun", "groups" to the manifest's permissions$/);
  const app = await make("groups, tun");
  await startApp(compose, app);
  t.is(await lineOf(compose, app), "web | 0 44 109");
  const { lines } = await compose.logs(app, { tail: 10 });
  t.is(lines[1]?.text, "web | tunnel");
  await end(compose, app);
});

composeTest(
  `a network of several projects is created for the first of them, and stays${needsCompose}`,
  async (t) => {
    const fixture = fixtureNow();
    const { compose, engine } = fixture;
    const script = forever.replaceAll("$", "$$$$");
    const document = `services:
  web: { image: svc/shell:1, command: [/bin/sh, -c, "${script}"], networks: [proxy],
    volumes: ["/etc/localtime:/etc/localtime:ro", "/etc/timezone:/etc/timezone:ro"] }
networks: { proxy: { external: true } }
`;
    const make = (id: string, uid: number, permissions: string): Promise<RunnableApp> =>
      fixture.app(id, `compose: { file: compose.yaml }\npermissions: [${permissions}]`, {
        uid,
        files: { "compose.yaml": document },
      });
    const proxy = async (): Promise<number> => (await engine.request("GET", "/networks/proxy")).status;
    const refused = await failureOf(compose.prepare(await make("mine", nobody, "networks"), {}));
    t.regex(
      refused.message,
      /^network "proxy" is not the app's own, which only root's own apps may do; leave it out/,
    );
    const lacking = await failureOf(compose.prepare(await make("lacking", 0, ""), {}));
    t.is(
      lacking.message,
      `network "proxy" is not the app's own; add "networks" to the manifest's permissions`,
    );
    t.is(await proxy(), 404);

    const apps = [await make("first", 0, "networks"), await make("second", 0, "networks")];
    for (const app of apps) await startApp(compose, app);
    const { Containers: joined, IPAM } = (await engine.request("GET", "/networks/proxy")).expect(200) as {
      Containers: object;
      IPAM: { Config: { Subnet: string }[] };
    };
    t.is(Object.keys(joined).length, 2);
    t.regex(IPAM.Config[0]?.Subnet ?? "", /\/25$/);
    for (const app of apps) await end(compose, app);
    t.is(await proxy(), 200);
  },
);

// Published ports of containers are reachable only from this host, unless the package or the operator sets another
// address.

type Published = Record<string, { HostIp: string; HostPort: string }[] | null>;

/** The engine's own description of an app's container. */
async function boundOf(fixture: DockerFixture, app: string): Promise<string[]> {
  const filters = encodeURIComponent(JSON.stringify({ label: [`svc.app=${app}`] }));
  const listed = (await fixture.engine.request("GET", `/containers/json?filters=${filters}`)).expect(200) as {
    Id: string;
  }[];
  const bound: string[] = [];
  for (const { Id } of listed) {
    const { NetworkSettings } = (await fixture.engine.request("GET", `/containers/${Id}/json`)).expect(
      200,
    ) as { NetworkSettings: { Ports: Published } };
    for (const bindings of Object.values(NetworkSettings.Ports)) {
      bound.push(...(bindings ?? []).map(({ HostIp, HostPort }) => `${HostIp}:${HostPort}`));
    }
  }
  return bound.sort();
}

const cases: [title: string, uid: number, port: string, settings: string, address: string][] = [
  ["a user's", nobody, "", "", "127.0.0.1"],
  ["a user's with an address", nobody, "address: 0.0.0.0, ", "", "0.0.0.0"],
  ["a user's with a setting", nobody, "address_setting: host, ", "127.0.0.2", "127.0.0.2"],
  ["root's", 0, "", "", "127.0.0.1"],
  ["root's with 0.0.0.0", 0, "address: 0.0.0.0, ", "", "0.0.0.0"],
  ["root's with an address", 0, "address: 127.0.0.3, ", "", "127.0.0.3"],
];
for (const [at, [title, uid, port, host, address]] of cases.entries()) {
  dockerTest(`${title} container is published at ${address}, and reports it${needsDocker}`, async (t) => {
    const fixture = fixtureNow();
    const number = await freePort();
    const app = await fixture.app(
      `address-${at}`,
      `docker: { image: "svc/web:1" }
${host === "" ? "" : 'settings: { properties: { host: { type: string, format: ipv4, default: "127.0.0.9" } } }'}
ports: [{ name: http, ${port}default: ${number}, container_port: 8080 }]
health: { http: { port: http } }`,
      { uid, ...(host !== "" && { settings: { host } }) },
    );
    const planned = await fixture.runtime.publishedAt(app);
    await startApp(fixture.runtime, app);
    await fixture.runtime.waitHealthy(app.id, 30_000);
    t.deepEqual(await boundOf(fixture, app.id), [`${address}:${number}`]);
    t.deepEqual([...planned], [[`${number}/tcp`, [address]]]);
    t.deepEqual(await fixture.runtime.publishedAt(app), planned);
    await fixture.runtime.stop(app);
    await fixture.runtime.remove(app);
  });
}

for (const [whose, uid] of [
  ["a user's", nobody],
  ["root's", 0],
] as const) {
  composeTest(
    `ports of ${whose} project are published where the file or the manifest says${needsCompose}`,
    async (t) => {
      const fixture = fixtureNow();
      const [silent, named, open] = [await freePort(), await freePort(), await freePort()];
      const app = await fixture.app(
        `address-project-${uid}`,
        `compose: { file: compose.yaml }\nports: [{ name: named, default: ${named}, address: 127.0.0.4 }]`,
        {
          uid,
          files: {
            "compose.yaml": `
services:
  web:
    image: svc/web:1
    ports: ["${silent}:8080", "${named}:8081", "0.0.0.0:${open}:8082", "8083"]
`,
          },
        },
      );
      await startApp(fixture.compose, app);
      const bound = await boundOf(fixture, app.id);
      const known = [`0.0.0.0:${open}`, `127.0.0.1:${silent}`, `127.0.0.4:${named}`];
      t.deepEqual(
        bound.filter((address) => known.includes(address)),
        known,
      );
      // The one without a host port gets any, at no other address.
      t.is(bound.length, 4);
      t.true(bound.every((address) => known.includes(address) || address.startsWith("127.0.0.1:")));
      t.deepEqual((await fixture.compose.publishedAt(app)).get(`${named}/tcp`), ["127.0.0.4"]);
      await fixture.compose.stop(app);
      t.deepEqual((await fixture.compose.publishedAt(app)).get(`${silent}/tcp`), ["127.0.0.1"]);
      await fixture.compose.remove(app);
    },
  );
}

const forms: [port: string | object, address: string, published: string, target: string, protocol: string][] =
  [
    ["80", "", "", "80", "tcp"],
    ["8080:80/udp", "", "8080", "80", "udp"],
    ["127.0.0.1:8080:80", "127.0.0.1", "8080", "80", "tcp"],
    ["127.0.0.1::80", "127.0.0.1", "", "80", "tcp"],
    ["[::1]:8080:80", "::1", "8080", "80", "tcp"],
    ["8000-8002:80-82", "", "8000-8002", "80-82", "tcp"],
    [{ published: "8080", target: 80, protocol: "udp" }, "", "8080", "80", "udp"],
    [{ target: 80, host_ip: "127.0.0.1", published: 8080 }, "127.0.0.1", "8080", "80", "tcp"],
  ];
for (const [port, address, published, target, protocol] of forms) {
  test(`the port ${JSON.stringify(port)} is parsed, and gets the default address if it has none`, async (t) => {
    t.deepEqual(readServicePort(port as never), { address, published, target, protocol });
    await using place = await policyDirectory();
    const document = { services: { web: { ports: [port as never] } } };
    const portsOf = (ownerUid: number): unknown =>
      withHostPorts(document, place.app(ownerUid), { publishAddress: "::1" })["services"];
    const expected = address === "" ? `[::1]:${published}:${target}/${protocol}` : port;
    t.deepEqual(portsOf(nobody), { web: { ports: [expected] } });
    t.deepEqual(portsOf(0), { web: { ports: [expected] } });
  });
}
