/** Containers of two apps never share a network, and svc finds room for more networks than the engine would. */
import assert from "node:assert/strict";
import test from "ava";
import { createDockerEngine } from "../../src/docker/engine.ts";
import { formatSubnet, freeSubnet, parseSubnet, routedSubnets, sizeFor } from "../../src/docker/subnets.ts";
import { AppNetworks } from "../../src/runtimes/app-networks.ts";
import type { RunnableApp } from "../../src/runtimes/runtime.ts";
import { dockerTest, needsDocker } from "../support/docker-test.ts";
import { eventually } from "../support/eventually.ts";
import { composeTest, needsCompose } from "./support/compose-test.ts";
import { failureOf, forever, sharedFixture, startApp } from "./support/container-tests.ts";
import { nobody, type DockerFixture } from "./support/docker-fixture.ts";

const fixtureNow = sharedFixture();
const otherUser = 1;

interface EngineContainer {
  readonly HostConfig: { readonly PidsLimit: number | null; readonly NetworkMode: string };
  readonly NetworkSettings: { readonly Networks: Record<string, { readonly IPAddress: string }> };
}

interface EngineNetwork {
  readonly Name: string;
  readonly Labels: Record<string, string>;
  readonly IPAM: { readonly Config: { readonly Subnet: string }[] };
}

async function listOf<T>(fixture: DockerFixture, kind: "containers" | "networks", id: string): Promise<T[]> {
  const filters = encodeURIComponent(JSON.stringify({ label: [`svc.app=${id}`] }));
  const path = kind === "containers" ? "/containers/json" : "/networks";
  return (await fixture.engine.request("GET", `${path}?filters=${filters}`)).expect(200) as T[];
}

async function containersOf(fixture: DockerFixture, id: string): Promise<EngineContainer[]> {
  const listed = await listOf<{ Id: string }>(fixture, "containers", id);
  return Promise.all(
    listed.map(
      async ({ Id }) =>
        (await fixture.engine.request("GET", `/containers/${Id}/json`)).expect(200) as EngineContainer,
    ),
  );
}

const networksOf = (fixture: DockerFixture, id: string): Promise<EngineNetwork[]> =>
  listOf(fixture, "networks", id);

function subnetsOf(networks: readonly EngineNetwork[]): string[] {
  return networks.flatMap(({ IPAM }) => IPAM.Config.map(({ Subnet }) => Subnet));
}

/** A program that tries to reach an address, says what came of it, and goes on. */
const reach = (address: string): string =>
  `echo | nc -w 3 ${address} 8080 >/dev/null 2>&1 && echo reached || echo apart; ${forever}`;

const shell = (script: string): string =>
  `docker: { image: "svc/shell:1", entrypoint: [/bin/sh, -c], command: [${JSON.stringify(script)}] }`;

dockerTest(`containers of two users do not reach each other${needsDocker}`, async (t) => {
  const fixture = fixtureNow();
  const { runtime, engine } = fixture;
  const server = await startApp(runtime, await fixture.app("server", `docker: { image: "svc/web:1" }`));
  const [container] = await containersOf(fixture, "server");
  const [network, ...others] = Object.entries(container?.NetworkSettings.Networks ?? {});
  t.deepEqual(others, []);
  const [name = "", { IPAddress: address = "" } = {}] = network ?? [];
  const attacker = await fixture.app("attacker", shell(reach(address)), { uid: otherUser });
  await startApp(runtime, attacker);
  await eventually(async () => {
    const { lines } = await runtime.logs(attacker, { tail: 1 });
    assert.equal(lines[0]?.text, "apart");
  }, 30_000);
  // The same program reaches it from the server's own network: it listens, and the address is right.
  const friend = await engine.run("friend", {
    Image: "svc/shell:1",
    Entrypoint: ["/bin/sh", "-c"],
    Cmd: [reach(address)],
    HostConfig: { NetworkMode: name },
  });
  await eventually(async () => {
    const { text } = await engine.request("GET", `/containers/${friend}/logs?stdout=1`);
    assert.match(text, /reached/);
  }, 30_000);

  t.is(container?.HostConfig.PidsLimit, 500);
  const networks = [await networksOf(fixture, "server"), await networksOf(fixture, "attacker")];
  const subnets = networks.flatMap(subnetsOf);
  t.is(new Set(subnets).size, 2);
  const pool = parseSubnet(engine.pool);
  for (const subnet of subnets.map(parseSubnet)) {
    t.true(pool !== undefined && subnet !== undefined);
    t.true(pool!.start <= subnet!.start && subnet!.end <= pool!.end);
    t.is(subnet!.end - subnet!.start, 16);
  }
  // Whoever has joined does not keep it.
  for (const app of [server, attacker]) {
    await runtime.stop(app);
    await runtime.remove(app);
    t.deepEqual(await networksOf(fixture, app.id), []);
  }
  await engine.request("DELETE", `/containers/${friend}?force=1`);
});

dockerTest(`a network that was pruned is there again for the next start${needsDocker}`, async (t) => {
  const fixture = fixtureNow();
  const { runtime, engine } = fixture;
  const app = await startApp(runtime, await fixture.app("pruned", shell(forever)));
  await runtime.stop(app);
  const [network] = await networksOf(fixture, app.id);
  (await engine.request("POST", "/networks/prune")).expect(200);
  t.deepEqual(await networksOf(fixture, app.id), []);
  await runtime.start(app);
  t.is(runtime.status(app.id)?.state, "RUNNING");
  t.is((await networksOf(fixture, app.id))[0]?.Name, network?.Name);
  await runtime.stop(app);
  await runtime.remove(app);
});

dockerTest(
  `root's apps have networks of their own too, and no limit on processes${needsDocker}`,
  async (t) => {
    const fixture = fixtureNow();
    const app = await fixture.app("of-root", shell(forever), { uid: 0 });
    await startApp(fixture.runtime, app);
    const [container] = await containersOf(fixture, app.id);
    t.is(container?.HostConfig.PidsLimit ?? 0, 0);
    t.is(container?.HostConfig.NetworkMode, (await networksOf(fixture, app.id))[0]?.Name);
    await fixture.runtime.stop(app);
    await fixture.runtime.remove(app);
  },
);

dockerTest(
  `at once and beside what is there, each gets other subnets; then the engine's${needsDocker}`,
  async (t) => {
    const { engine } = fixtureNow();
    await using client = createDockerEngine({ socket: engine.socket });
    const whole = parseSubnet(engine.pool)!;
    // The last four of the engine's, of which one is taken already.
    const pool = { start: whole.end - 64, end: whole.end };
    const taken = formatSubnet({ start: pool.start + 16, end: pool.start + 32 });
    const made = (
      await engine.request("POST", "/networks/create", {
        Name: "somebody",
        IPAM: { Config: [{ Subnet: taken }] },
      })
    ).expect(201) as { Id: string };
    const networks = new AppNetworks({ engine: client, storeId: "pools", pool });
    const ids = ["a", "b", "c", "d"];
    await Promise.all(ids.map((id) => networks.ensure(id)));
    const subnets: string[] = [];
    for (const id of ids) {
      const [network] = await networks.of(id);
      subnets.push(network?.IPAM?.Config?.[0]?.Subnet ?? "");
    }
    const own = [0, 32, 48].map((at) => formatSubnet({ start: pool.start + at, end: pool.start + at + 16 }));
    t.is(new Set(subnets).size, 4);
    t.deepEqual(
      own.filter((subnet) => !subnets.includes(subnet)),
      [],
    );
    for (const id of ids) await networks.remove(id);
    await engine.request("DELETE", `/networks/${made.Id}`);
  },
);

composeTest(`a project's networks get subnets of svc's, and keep them${needsCompose}`, async (t) => {
  const fixture = fixtureNow();
  const { compose } = fixture;
  const deployed = [", deploy: { resources: { limits: { memory: 64M } } }", ", deploy: { replicas: 1 }"];
  const services = Array.from(
    { length: 3 },
    (_, at) => `
  s${at}: { image: svc/shell:1, command: [/bin/sh, -c, "${forever.replaceAll("$", "$$$$")}"], networks: [default, back]${deployed[at] ?? ""} }`,
  );
  const document = (more = ""): string =>
    `services:${services.join("")}\nnetworks: { back: { internal: true } }\n${more}`;
  const make = (settings: Record<string, string> = {}): Promise<RunnableApp> =>
    fixture.app(
      "project",
      "compose: { file: compose.yaml }\nsettings: { properties: { word: { type: string, env: WORD } } }",
      { settings, files: { "compose.yaml": document() } },
    );
  const app = await startApp(compose, await make());
  const first = await networksOf(fixture, app.id);
  const pool = parseSubnet(fixture.engine.pool)!;
  t.deepEqual(first.map(({ Name }) => Name).sort(), ["svc-project_back", "svc-project_default"]);
  for (const [at, subnet] of subnetsOf(first).entries()) {
    t.is(first[at]?.Labels["svc.subnet"], subnet);
    const { start = 0, end = 0 } = parseSubnet(subnet) ?? {};
    t.true(pool.start <= start && end <= pool.end && end - start === 16, subnet);
  }
  const limits = (await containersOf(fixture, app.id)).map(({ HostConfig }) => HostConfig.PidsLimit);
  t.deepEqual(limits, [500, 500, 500]);
  await compose.stop(app);
  // What it is made anew for are its settings, not its networks.
  const changed = await make({ word: "new" });
  await compose.start(changed);
  const again = await networksOf(fixture, app.id);
  t.deepEqual(subnetsOf(again).sort(), subnetsOf(first).sort());
  await compose.stop(changed);
  await compose.remove(changed);
  t.deepEqual(await networksOf(fixture, app.id), []);
});

composeTest(`a user's service does not join the network of all${needsCompose}`, async (t) => {
  const fixture = fixtureNow();
  const app = await fixture.app("joins", "compose: { file: compose.yaml }", {
    files: { "compose.yaml": "services: { s: { image: svc/shell:1, network_mode: bridge } }\n" },
    uid: nobody,
  });
  const { reason, message } = await failureOf(fixture.compose.check(app));
  t.is(reason, "denied");
  t.regex(message, /service "s" has the network mode "bridge", the network of all: leave it out/);
});

test("subnets are read, written, and the lowest free one is found", (t) => {
  for (const text of ["10.201.0.0/16", "0.0.0.0/0", "255.255.255.255/32", "10.0.0.16/28"]) {
    t.is(formatSubnet(parseSubnet(text)!), text);
  }
  for (const text of ["10.201.0.1/16", "10.201.0.0/33", "10.201.0.256/32", "fd00::/8", "", "10.0.0.0"]) {
    t.is(parseSubnet(text), undefined, text);
  }
  const free = (size: number, ...taken: string[]): string | undefined => {
    const found = freeSubnet(
      parseSubnet("10.1.0.0/24")!,
      size,
      taken.map((text) => parseSubnet(text)!),
    );
    return found && formatSubnet(found);
  };
  t.is(free(16), "10.1.0.0/28");
  t.is(free(16, "10.1.0.0/28", "10.1.0.32/28"), "10.1.0.16/28");
  t.is(free(64, "10.1.0.16/28"), "10.1.0.64/26");
  t.is(free(16, "10.1.0.0/25", "10.1.0.128/26"), "10.1.0.192/28");
  t.is(free(16, "10.0.0.0/8"), undefined);
  t.is(free(512), undefined);
  t.deepEqual([1, 13, 14, 29, 30].map(sizeFor), [16, 16, 32, 32, 64]);
});

test("routes of the host are networks, its ways out are not", (t) => {
  const table = [
    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT",
    "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0",
    "tun0\t00000000\t010200C0\t0003\t0\t0\t0\t00000080\t0\t0\t0",
    "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0",
    "br0\t0000E70A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0",
  ].join("\n");
  t.deepEqual(routedSubnets(table).map(formatSubnet), ["192.0.2.0/24", "10.231.0.0/16"]);
});
