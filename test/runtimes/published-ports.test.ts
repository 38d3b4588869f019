/**
 * Published ports of containers are reachable only from this host, unless the package or the operator sets another
 * address.
 */
import test from "ava";
import { readServicePort, withAddresses } from "../../src/runtimes/compose/service-ports.ts";
import { nobody, type DockerFixture } from "./support/docker-fixture.ts";
import { dockerTest, needsDocker } from "../support/docker-test.ts";
import { freePort } from "../support/packages.ts";
import { sharedFixture, startApp } from "./support/container-tests.ts";
import { composeTest, needsCompose } from "./support/compose-test.ts";
import { policyDirectory } from "./support/policy-app.ts";

const fixtureNow = sharedFixture();

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
      withAddresses(document, place.app(ownerUid), { publishAddress: "::1" })["services"];
    const wanted = address === "" ? `[::1]:${published}:${target}/${protocol}` : port;
    t.deepEqual(portsOf(nobody), { web: { ports: [wanted] } });
    t.deepEqual(portsOf(0), { web: { ports: [wanted] } });
  });
}
