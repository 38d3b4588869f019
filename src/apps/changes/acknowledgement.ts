/** Licenses and permissions that must be accepted before a package is installed. */
import { SvcError } from "../../errors.ts";
import type { Manifest } from "../../packages/manifest/manifest.ts";
import type { LicenseText } from "../../packages/manifest/licenses.ts";
import type { ResolvedPackage } from "../../packages/resolved-package.ts";
import { describePermissions } from "../../packages/manifest/permissions.ts";

/** The accepted licenses and permissions in an app's record. */
export interface Acknowledgement {
  /** SHA-256 of each license file, lower-case hex. */
  readonly licenses: readonly string[];
  readonly permissions: Manifest["permissions"];
}

/** The licenses and permissions that a version of a package needs. */
export function acknowledgementOf({ licenses, manifest }: ConsentSource): Acknowledgement {
  return { licenses: licenses.map(({ sha256 }) => sha256), permissions: manifest.permissions };
}

/** The caller's consents. Licenses and permissions are separate, because a license grants nothing on the host. */
export interface Consent {
  readonly licenseAck: boolean;
  readonly permissionsAck: boolean;
}

/** The parts of a package that can need acceptance. */
export type ConsentSource = Pick<ResolvedPackage, "licenses" | "manifest">;

/** New and changed items. */
export interface RequiredConsent {
  readonly licenses: readonly LicenseText[];
  /** One sentence per permission. */
  readonly permissions: readonly string[];
}

/** The owner of the app, and what was accepted earlier. */
export interface EarlierConsent {
  readonly ownerUid: number;
  readonly accepted: Acknowledgement;
}

/**
 * The items that were not accepted yet. Only root can accept permissions: apps of other users never get them, and their
 * runtime reports what it rejects.
 */
export function requiredConsent(
  { licenses, manifest }: ConsentSource,
  { ownerUid, accepted }: EarlierConsent,
): RequiredConsent {
  const added = manifest.permissions.filter((each) => !accepted.permissions.includes(each));
  return {
    licenses: licenses.filter(({ sha256 }) => !accepted.licenses.includes(sha256)),
    permissions: ownerUid === 0 ? describePermissions(added) : [],
  };
}

/** @throws SvcError `license_required` with the new and changed licenses and permissions */
export function requireAcknowledgement(
  resolved: ResolvedPackage,
  request: Consent & EarlierConsent & { readonly again: "install" | "upgrade" },
): void {
  const { name } = resolved.manifest;
  try {
    requireConsent(`${name} ${resolved.version}`, requiredConsent(resolved, request), request);
  } catch (error) {
    // The caller repeats the request after accepting.
    resolved.retain();
    throw error;
  }
}

/**
 * @param name name of the package or archive
 * @throws SvcError `license_required` with the items that the caller did not accept
 */
export function requireConsent(
  name: string,
  required: RequiredConsent,
  { licenseAck, permissionsAck, again }: Consent & { readonly again: "install" | "upgrade" | "restore" },
): void {
  const licenses = licenseAck ? [] : required.licenses;
  const permissions = permissionsAck ? [] : required.permissions;
  if (licenses.length === 0 && permissions.length === 0) return;
  const what = [
    ...(licenses.length > 0 ? [`ships ${licenses.map((license) => license.name).join(", ")}`] : []),
    ...(permissions.length > 0 ? ["needs permissions on the host"] : []),
  ].join(" and ");
  const fields = [
    ...(licenses.length > 0 ? ["license_ack"] : []),
    ...(permissions.length > 0 ? ["permissions_ack"] : []),
  ].join(" and ");
  throw new SvcError(
    "license_required",
    `${name} ${what}: read it, and ${again} again with ${fields} true to accept`,
    { payload: { licenses: [...licenses], permissions: [...permissions] } },
  );
}

/** Nothing accepted. */
export const nothingAccepted: Acknowledgement = { licenses: [], permissions: [] };
