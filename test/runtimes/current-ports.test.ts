/** Ports of an edited compose file, beside a manifest that was generated earlier. */
import test from "ava";
import { withCurrentPorts } from "../../src/runtimes/compose/current-ports.ts";
import { parseManifest } from "../packages/support/manifests.ts";

const twoPorts = `
settings:
  properties:
    web_port: {type: integer, default: 8080}
    web_443_port: {type: integer, default: 8443}
ports:
  - {name: web, setting: web_port}
  - {name: web-443, setting: web_443_port}
`;
const bothProtocols = `
settings: {properties: {dns_port: {type: integer, default: 5353}}}
ports:
  - {name: dns, setting: dns_port}
  - {name: dns-53-udp, protocol: udp, setting: dns_port}
`;
const host = { network_mode: "host" };

interface Row {
  readonly rest: string;
  readonly services: Record<string, { ports: string[]; network_mode?: string }>;
  readonly defaults: number[];
  readonly ports: string[];
  readonly notes: number;
}

const rows: Record<string, Row> = {
  "unchanged ports": {
    rest: twoPorts,
    services: { web: { ports: ["8080:80", "8443:443"] } },
    ...{ defaults: [8080, 8443], ports: ["web", "web-443"], notes: 0 },
  },
  "two ports of one service in another order": {
    rest: twoPorts,
    services: { web: { ports: ["8444:443", "8081:80"] } },
    ...{ defaults: [8081, 8444], ports: ["web", "web-443"], notes: 2 },
  },
  "one number for both protocols": {
    rest: bothProtocols,
    services: { dns: { ports: ["54:53/tcp", "54:53/udp"] } },
    ...{ defaults: [54], ports: ["dns", "dns-53-udp"], notes: 2 },
  },
  "a number that only one of two protocols still has": {
    rest: bothProtocols,
    services: { dns: { ports: ["54:53/tcp", "5353:53/udp"] } },
    ...{ defaults: [5353], ports: ["dns-53-udp"], notes: 1 },
  },
  "a port that another service took over": {
    rest: twoPorts,
    services: { proxy: { ports: ["9090:80"] }, web: { ports: ["8443:443"] } },
    ...{ defaults: [8080, 8443], ports: ["web-443"], notes: 1 },
  },
  "services on the host's network": {
    rest: twoPorts,
    services: { web: { ports: [], ...host } },
    ...{ defaults: [8080, 8443], ports: ["web", "web-443"], notes: 0 },
  },
  "a port that the health check uses": {
    rest: `${twoPorts}health: {tcp: {port: web}}`,
    services: { web: { ports: ["8443:443"] } },
    ...{ defaults: [8080, 8443], ports: ["web", "web-443"], notes: 1 },
  },
};

for (const [what, { rest, services, defaults, ports, notes }] of Object.entries(rows)) {
  test(`a manifest gets the numbers of its compose file: ${what}`, async (t) => {
    const head = `id: x\nname: X\nversion: "1"\ncompose: {file: compose.yaml}\n`;
    const manifest = await parseManifest(head + rest);
    const current = withCurrentPorts({ manifest, settings: {} }, { services: services });
    const properties = Object.values(current.manifest.settings?.properties ?? {});
    t.deepEqual(
      properties.map((setting) => setting.default),
      defaults,
    );
    t.deepEqual(
      current.manifest.ports.map(({ name }) => name),
      ports,
    );
    t.is(current.notes.length, notes, current.notes.join("\n"));
  });
}
