/**
 * Containers of two apps never share a network, and svc has subnets for more networks than the engine's default pool.
 */
import assert from "node:assert/strict";
import test from "ava";
import { createDockerEngine } from "../../../src/engine/engine.ts";
import {
  formatSubnet,
  freeSubnets,
  parseSubnet,
  routedSubnets,
  sizeFor,
} from "../../../src/engine/subnets.ts";
import { AppNetworks } from "../../../src/runtimes/containers/app-networks.ts";
import type { RunnableApp } from "../../../src/runtimes/runnable-app.ts";
import { dockerTest, needsDocker } from "../../support/docker-test.ts";
import { eventually } from "../../support/eventually.ts";
import { composeTest, needsCompose } from "../../runtimes/support/compose-test.ts";
import { failureOf, forever, sharedFixture, startApp } from "../../runtimes/support/container-tests.ts";
import { nobody, type DockerFixture } from "../../runtimes/support/docker-fixture.ts";
import { ownershipIn } from "../../support/ownership.ts";

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

/** A program that tries to reach an address, prints the result, and continues. */
const reach = (address: string): string =>
  `echo | nc -w 3 ${address} 8080 >/dev/null 2>&1 && echo reached || echo apart; ${forever}`;

const shell = (script: string): string =>
  `docker: { image: "svc/shell:1", entrypoint: [/bin/sh, -c], command: [${JSON.stringify(script)}] }`;

dockerTest(`containers of two users cannot reach each other${needsDocker}`, async (t) => {
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
  // The same program reaches it from the server's own network, so the server listens and the address is right.
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
  // An attached container does not retain it.
  for (const app of [server, attacker]) {
    await runtime.stop(app);
    await runtime.remove(app);
    t.deepEqual(await networksOf(fixture, app.id), []);
  }
  await engine.request("DELETE", `/containers/${friend}?force=1`);
});

dockerTest(`a pruned network is recreated for the next start${needsDocker}`, async (t) => {
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

dockerTest(`root's apps have their own networks, too, and no process limit${needsDocker}`, async (t) => {
  const fixture = fixtureNow();
  const app = await fixture.app("of-root", shell(forever), { uid: 0 });
  await startApp(fixture.runtime, app);
  const [container] = await containersOf(fixture, app.id);
  t.is(container?.HostConfig.PidsLimit ?? 0, 0);
  t.is(container?.HostConfig.NetworkMode, (await networksOf(fixture, app.id))[0]?.Name);
  await fixture.runtime.stop(app);
  await fixture.runtime.remove(app);
});

dockerTest(
  `networks created concurrently get different subnets, then the engine's${needsDocker}`,
  async (t) => {
    const { engine } = fixtureNow();
    await using client = createDockerEngine({ socket: engine.socket });
    const whole = parseSubnet(engine.pool)!;
    // The engine's last four; one is in use.
    const pool = { start: whole.end - 64, end: whole.end };
    const taken = formatSubnet({ start: pool.start + 16, end: pool.start + 32 });
    const made = (
      await engine.request("POST", "/networks/create", {
        Name: "somebody",
        IPAM: { Config: [{ Subnet: taken }] },
      })
    ).expect(201) as { Id: string };
    const networks = new AppNetworks({
      ...{ engine: client, ownership: ownershipIn("pools"), pool },
      ...{ maxPerUser: 256, ownerOf: () => 0 },
    });
    const ids = ["a", "b", "c", "d"];
    await Promise.all(ids.map((id) => networks.ensure({ id, ownerUid: 0 })));
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

dockerTest(
  `users' networks never exhaust the pool, and one user never exhausts another user's share${needsDocker}`,
  async (t) => {
    const { engine } = fixtureNow();
    await using client = createDockerEngine({ socket: engine.socket });
    const whole = parseSubnet(engine.pool)!;
    // Sixteen of the smallest subnets: four per user, twelve for all users.
    const pool = { start: whole.end - 512, end: whole.end - 256 };
    const owners = new Map<string, number>();
    const options = {
      engine: client,
      ownership: ownershipIn("shares"),
      pool,
      ownerOf: (id: string) => owners.get(id),
    };
    const networks = new AppNetworks({ ...options, maxPerUser: 100 });
    const ensure = (id: string, ownerUid: number, of = networks): Promise<void> => {
      owners.set(id, ownerUid);
      return of.ensure({ id, ownerUid });
    };
    try {
      const results = await Promise.allSettled([0, 1, 2, 3, 4].map((n) => ensure(`one-${n}`, 4001)));
      t.is(results.filter(({ status }) => status === "fulfilled").length, 4);
      const { reason, message } = await failureOf(ensure("one-more", 4001));
      t.is(reason, "too_many");
      t.regex(message, /more than a quarter of the addresses of .* \(\[docker\] subnet_pool\)/);
      for (const uid of [4002, 4003]) for (let n = 0; n < 4; n++) await ensure(`of-${uid}-${n}`, uid);
      t.regex((await failureOf(ensure("of-4004", 4004))).message, /that users share are used up/);
      await ensure("of-root", 0);
      const [network] = await networks.of("of-root");
      const subnet = parseSubnet(network?.IPAM?.Config?.[0]?.Subnet ?? "");
      t.true(subnet !== undefined && subnet.start >= pool.start && subnet.end <= pool.end);
      const few = new AppNetworks({ ...options, maxPerUser: 4 });
      t.regex(
        (await failureOf(ensure("one-more", 4001, few))).message,
        /you would have 5, and \[limits\] max_networks_per_user is 4/,
      );
    } finally {
      for (const id of owners.keys()) await networks.remove(id);
    }
  },
);

composeTest(`a user's project has at most 32 networks${needsCompose}`, async (t) => {
  const fixture = fixtureNow();
  const names = Array.from({ length: 32 }, (_, n) => `n${n}`);
  const app = await fixture.app("wide", "compose: { file: compose.yaml }", {
    files: {
      "compose.yaml": `services: { s: { image: svc/shell:1, networks: [${names.join()}] } }\nnetworks: { ${names.map((name) => `${name}: {}`).join()} }\n`,
    },
    uid: nobody,
  });
  const { reason, message } = await failureOf(fixture.compose.check(app));
  t.is(reason, "denied");
  t.regex(message, /has 33 networks, more than 32/);
});

dockerTest(`an app does not join an unmanaged network with its name${needsDocker}`, async (t) => {
  const fixture = fixtureNow();
  const app = await fixture.app("squatted", shell(forever));
  const name = fixture.ownership.networkOf("squatted");
  const labels = { "svc.app": "squatted", "svc.store": "test" };
  (await fixture.engine.request("POST", "/networks/create", { Name: name, Labels: labels })).expect(201);
  const error = await failureOf(startApp(fixture.runtime, app));
  t.regex(error.message, new RegExp(`network ${name} exists .*; remove it: docker network rm ${name}$`));
  (await fixture.engine.request("DELETE", `/networks/${name}`)).expect(204);
  await fixture.runtime.start(app);
  await fixture.runtime.stop(app);
  await fixture.runtime.remove(app);
});

composeTest(`a project's networks get subnets from svc, and keep them${needsCompose}`, async (t) => {
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
  const project = fixture.ownership.projectOf("project");
  const pool = parseSubnet(fixture.engine.pool)!;
  t.deepEqual(first.map(({ Name }) => Name).sort(), [`${project}_back`, `${project}_default`]);
  for (const [at, subnet] of subnetsOf(first).entries()) {
    t.is(first[at]?.Labels["svc.subnet"], subnet);
    const { start = 0, end = 0 } = parseSubnet(subnet) ?? {};
    t.true(pool.start <= start && end <= pool.end && end - start === 16, subnet);
  }
  const limits = (await containersOf(fixture, app.id)).map(({ HostConfig }) => HostConfig.PidsLimit);
  t.deepEqual(limits, [500, 500, 500]);
  await compose.stop(app);
  // It is recreated for its settings, not for its networks.
  const changed = await make({ word: "new" });
  await compose.start(changed);
  const again = await networksOf(fixture, app.id);
  t.deepEqual(subnetsOf(again).sort(), subnetsOf(first).sort());
  await compose.stop(changed);
  await compose.remove(changed);
  t.deepEqual(await networksOf(fixture, app.id), []);
});

composeTest(`a user's service does not join the shared network${needsCompose}`, async (t) => {
  const fixture = fixtureNow();
  const app = await fixture.app("joins", "compose: { file: compose.yaml }", {
    files: { "compose.yaml": "services: { s: { image: svc/shell:1, network_mode: bridge } }\n" },
    uid: nobody,
  });
  const { reason, message } = await failureOf(fixture.compose.check(app));
  t.is(reason, "denied");
  t.regex(
    message,
    /service "s" has the network mode "bridge", a network that all containers share, which only root's own apps may do; lower it or leave it out/,
  );
});

test("subnets are parsed and formatted, and the lowest free one is found", (t) => {
  for (const text of ["10.201.0.0/16", "0.0.0.0/0", "255.255.255.255/32", "10.0.0.16/28"]) {
    t.is(formatSubnet(parseSubnet(text)!), text);
  }
  for (const text of ["10.201.0.1/16", "10.201.0.0/33", "10.201.0.256/32", "fd00::/8", "", "10.0.0.0"]) {
    t.is(parseSubnet(text), undefined, text);
  }
  const free = (size: number, ...taken: string[]): string | undefined => {
    const [found] = freeSubnets(
      parseSubnet("10.1.0.0/24")!,
      size,
      1,
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

test("a subnet beside thousands of others is found in one pass", (t) => {
  const pool = parseSubnet("10.0.0.0/8")!;
  const taken = Array.from({ length: 20_000 }, (_, n) => {
    const start = pool.start + 32 * ((n * 7919) % 20_000);
    return { start, end: start + 16 };
  });
  const beganMs = performance.now();
  const found = freeSubnets(pool, 16, 20_001, taken);
  t.true(performance.now() - beganMs < 1_000);
  t.is(new Set(found.map(({ start }) => start)).size, 20_001);
  t.true(found.slice(0, 20_000).every(({ start }, n) => start === pool.start + 32 * n + 16));
  t.is(found.at(-1)?.start, pool.start + 32 * 20_000);
});

test("the host's routes are networks, and its default routes are not", (t) => {
  const table = [
    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT",
    "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0",
    "tun0\t00000000\t010200C0\t0003\t0\t0\t0\t00000080\t0\t0\t0",
    "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0",
    "br0\t0000E70A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0",
  ].join("\n");
  t.deepEqual(routedSubnets(table).map(formatSubnet), ["192.0.2.0/24", "10.231.0.0/16"]);
});
