/** Rejects ports that an app could not use when they are chosen, as its start would only fail. */
import { invalidRequest } from "../../errors.ts";
import type { JsonObject } from "../../lib/json.ts";
import { portViolations } from "../../packages/settings/chosen-ports.ts";
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
  const start = mayHaveAll(choice) ? 0 : await readUnprivilegedPortStart();
  const violations = portViolations(manifest, mergeDefaults(manifest, values), (port) => {
    if (port === daemonPort) return `must not be ${port}: the port is reserved for svc`;
    return port < start ? `must be at least ${start}: ports below it are for root's own apps` : undefined;
  });
  if (violations.length > 0) throw invalidRequest(violations);
}

/** An administrator can give more rights to apps of a daemon that does not run as root; systemd decides for units. */
function mayHaveAll({ manifest, ownerUid, runUid, selfUid }: PortChoice): boolean {
  switch (manifest.runtime.kind) {
    case "process":
      return selfUid !== 0 || runUid === 0;
    case "docker":
    case "compose":
      return ownerUid === 0;
    case "service":
      return true;
  }
}
