/** Ports that an app may not listen on as whom it runs: told when they are chosen, as its start would only fail. */
import { invalidRequest } from "../errors.ts";
import type { JsonObject } from "../lib/json.ts";
import { portViolations } from "../packages/chosen-ports.ts";
import type { Manifest } from "../packages/manifest.ts";
import { mergeDefaults } from "../packages/settings.ts";
import { readUnprivilegedPortStart } from "../runtimes/container-policy.ts";

export interface PortChoice {
  readonly manifest: Manifest;
  /** Without the defaults. */
  readonly values: JsonObject;
  readonly ownerUid: number;
  /** The uid that it runs as. */
  readonly runUid: number;
  /** Of the daemon. */
  readonly selfUid: number;
}

/** @throws SvcError `invalid_request` with one violation for each setting that gives a port of root's to an app that is not */
export async function requireOpenPorts(choice: PortChoice): Promise<void> {
  const { manifest, values } = choice;
  if (manifest.ports.length === 0 || mayHaveAll(choice)) return;
  const start = await readUnprivilegedPortStart();
  const violations = portViolations(manifest, mergeDefaults(manifest, values), (port) =>
    port < start ? `must be at least ${start}: ports below it are for root's own apps` : undefined,
  );
  if (violations.length > 0) throw invalidRequest(violations);
}

/** What a daemon that is not root starts may have been given more by its administrator; units are systemd's affair. */
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
