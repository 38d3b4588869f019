/** What a package asks people to accept before it is installed: its licenses, and what it wants of the host. */
import { SvcError } from "../errors.ts";
import type { Manifest } from "../packages/manifest.ts";
import type { ResolvedPackage } from "../packages/resolved-package.ts";
import { describePermissions } from "../packages/permissions.ts";

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

/** What the caller says yes to: each for itself, as a license gives nothing of the host. */
export interface Consent {
  readonly licenseAck: boolean;
  readonly permissionsAck: boolean;
}

/** What is asked of whom. */
export interface Asking extends Consent {
  readonly ownerUid: number;
  /** What was accepted before. */
  readonly accepted: Acknowledgement;
  /** What to do again. */
  readonly again: "install" | "upgrade";
}

/**
 * Asks for what has not been accepted yet. Permissions are asked of root alone: nobody else's apps get them, whatever is
 * said, and what they would be refused is for their runtime to say.
 * @throws SvcError `license_required` with the licenses and permissions that are new or changed
 */
export function requireAcknowledgement(resolved: ResolvedPackage, asking: Asking): void {
  const { ownerUid, accepted, again, licenseAck, permissionsAck } = asking;
  const licenses = licenseAck
    ? []
    : resolved.licenses.filter(({ sha256 }) => !accepted.licenses.includes(sha256));
  const added = resolved.manifest.permissions.filter((each) => !accepted.permissions.includes(each));
  const permissions = permissionsAck || ownerUid !== 0 ? [] : describePermissions(added);
  if (licenses.length === 0 && permissions.length === 0) return;
  const what = [
    ...(licenses.length > 0 ? [`ships ${licenses.map((license) => license.name).join(", ")}`] : []),
    ...(permissions.length > 0 ? ["asks for permissions on the host"] : []),
  ].join(" and ");
  const fields = [
    ...(licenses.length > 0 ? ["license_ack"] : []),
    ...(permissions.length > 0 ? ["permissions_ack"] : []),
  ].join(" and ");
  // Who says yes asks again.
  resolved.keep();
  throw new SvcError(
    "license_required",
    `${resolved.manifest.name} ${resolved.version} ${what}: read it, and ${again} again with ${fields} true to accept`,
    { payload: { licenses, permissions } },
  );
}

/** Nothing was accepted yet. */
export const nothingAccepted: Acknowledgement = { licenses: [], permissions: [] };
