/** What a package asks people to accept before it is installed: its licenses, and what it wants of the host. */
import { failedPrecondition } from "../errors.ts";
import { describePermissions, type Manifest } from "../packages/manifest.ts";
import type { ResolvedPackage } from "../packages/package-resolver.ts";

/** What was accepted for an app, as its record keeps it. */
export interface Acknowledgement {
  /** SHA-256 of each license file, lower-case hex. */
  readonly licenses: readonly string[];
  readonly permissions: Manifest["permissions"];
}

/** What a version of a package asks for. */
export function acknowledgementOf({ licenses, manifest }: ResolvedPackage): Acknowledgement {
  return { licenses: licenses.map(({ sha256 }) => sha256), permissions: manifest.permissions };
}

/**
 * Asks for what has not been accepted yet.
 * @param accepted what was accepted before
 * @param again what to do again, such as `install`
 * @throws SvcError `license_required` with the licenses and permissions that are new or changed
 */
export function requireAcknowledgement(
  resolved: ResolvedPackage,
  accepted: Acknowledgement,
  again: "install" | "upgrade",
): void {
  const licenses = resolved.licenses.filter(({ sha256 }) => !accepted.licenses.includes(sha256));
  const added = resolved.manifest.permissions.filter((each) => !accepted.permissions.includes(each));
  const permissions = describePermissions({ permissions: added });
  if (licenses.length === 0 && permissions.length === 0) return;
  const what = [
    ...(licenses.length > 0 ? [`ships ${licenses.map((license) => license.name).join(", ")}`] : []),
    ...(permissions.length > 0 ? ["asks for permissions on the host"] : []),
  ].join(" and ");
  // Who says yes asks again.
  resolved.keep();
  throw failedPrecondition(
    "license_required",
    `${resolved.manifest.name} ${resolved.version} ${what}: read it, and ${again} again with license_ack true to accept`,
    { payload: { licenses, permissions } },
  );
}

/** Nothing was accepted yet. */
export const nothingAccepted: Acknowledgement = { licenses: [], permissions: [] };
