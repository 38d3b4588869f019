/** Rejects ports that an app could not use when they are chosen, as its start would only fail. */
import { readFile } from "node:fs/promises";
import { invalidRequest } from "../../errors.ts";
import type { JsonObject } from "../../lib/json.ts";
import { portViolations, unprivilegedPort } from "../../packages/settings/chosen-ports.ts";
import type { Manifest } from "../../packages/manifest/manifest.ts";
import { mergeDefaults } from "../../packages/settings/settings.ts";
import { readUnprivilegedPortStart } from "../../runtimes/containers/container-policy.ts";

export interface PortChoice {
  readonly manifest: Manifest;
  /** The chosen values, without defaults. */
  readonly values: JsonObject;
  readonly ownerUid: number;
  /** The uid that it runs as. */
  readonly runUid: number;
  /** The daemon's uid. */
  readonly selfUid: number;
  /** TCP port of the daemon; 0 reserves none. */
  readonly daemonPort: number;
}

/** @throws SvcError `invalid_request` with one violation for each setting that gives the daemon's port, or root's to another user's app */
export async function requireOpenPorts(choice: PortChoice): Promise<void> {
  const { manifest, values, daemonPort } = choice;
  if (manifest.ports.length === 0) return;
  const start = (await mayHaveAll(choice)) ? 0 : await readUnprivilegedPortStart();
  const why =
    choice.selfUid === 0 || manifest.runtime.kind !== "process"
      ? "ports below it are for root's own apps"
      : "svc does not run as root; root can allow lower ports with sysctl net.ipv4.ip_unprivileged_port_start";
  const violations = portViolations(manifest, mergeDefaults(manifest, values), (port) => {
    if (port === daemonPort) return { description: `must not be ${port}: the port is reserved for svc` };
    if (port >= start) return undefined;
    const suggestion = String(openPortFor(port, start));
    return {
      description: `must be at least ${start}: ${why}; choose another, such as ${suggestion}`,
      suggestion,
    };
  });
  if (violations.length > 0) throw invalidRequest(violations);
}

/** The port to choose instead, at least `start`. */
export function openPortFor(port: number, start: number): number {
  return Math.max(start, unprivilegedPort(port));
}

/** Root can give more rights to a daemon that does not run as root, which its apps inherit; systemd decides for units. */
async function mayHaveAll({ manifest, ownerUid, runUid, selfUid }: PortChoice): Promise<boolean> {
  switch (manifest.runtime.kind) {
    case "process":
      return selfUid === 0 ? runUid === 0 : inheritsPorts();
    case "docker":
    case "compose":
      return ownerUid === 0;
    case "service":
      return true;
  }
}

/** Whether the daemon's programs get CAP_NET_BIND_SERVICE, which is capability 10. */
async function inheritsPorts(): Promise<boolean> {
  const status = await readFile("/proc/self/status", "latin1");
  const set = /^CapAmb:\s*([0-9a-f]+)$/m.exec(status)?.[1] ?? "0";
  return (BigInt(`0x${set}`) & (1n << 10n)) !== 0n;
}
