/** Licenses and permissions that a package requires consent for: shown and confirmed at a terminal. */
import type { ReasonPayloads, SvcError } from "../../errors.ts";
import type { CommandContext } from "../context.ts";
import { AdvisedError, asSvcError } from "../output/failure.ts";
import { escapeLines } from "../output/escape.ts";
import { confirm, isInteractive } from "./prompt.ts";

type LicenseRequired = ReasonPayloads["license_required"];

/** The consents given so far, by kind. */
export interface Accepted {
  readonly licenseAck: boolean;
  readonly permissionsAck: boolean;
}

/** `--accept-license` and `--accept-permissions` of commands that restore an app. */
export const acceptRestoredOptions = [
  ["--accept-license", "accept the licenses in the archive"],
  [
    "--accept-permissions",
    "grant the host permissions that the app requires; as root, also trust an archive from another host",
  ],
] as const;

export interface AcceptOptions {
  readonly acceptLicense?: boolean;
  readonly acceptPermissions?: boolean;
}

/** Consents given on the command line. */
export function acceptedBy({ acceptLicense = false, acceptPermissions = false }: AcceptOptions): Accepted {
  return { licenseAck: acceptLicense, permissionsAck: acceptPermissions };
}

/**
 * Runs an action that may require consent to licenses or permissions, and repeats it once they are given.
 * @param name the package or app, as the command line names it
 * @throws SvcError `license_required` without a terminal, or if the user declines
 */
export async function acceptingLicenses<T>(
  context: CommandContext,
  name: string,
  accepted: Accepted,
  attempt: (accepted: Accepted) => Promise<T>,
): Promise<T> {
  try {
    return await attempt(accepted);
  } catch (thrown) {
    const error = asSvcError(thrown);
    if (error?.reason !== "license_required") throw thrown;
    const { licenses = [], permissions = [] } = (error.payload ?? {}) as LicenseRequired;
    const required = {
      licenseAck: accepted.licenseAck || licenses.length > 0,
      permissionsAck: accepted.permissionsAck || permissions.length > 0,
    };
    // If the daemon still requires what was accepted, asking again would loop.
    const isNew =
      required.licenseAck !== accepted.licenseAck || required.permissionsAck !== accepted.permissionsAck;
    if (!isNew) throw thrown;
    // With --json the daemon's error is returned unchanged.
    if (!isInteractive(context.host)) throw context.json ? thrown : explainConsent(name, error);
    await askForConsent(context, name, error);
    return attempt(required);
  }
}

/** The daemon's message explains acceptance for the API; this one explains it for the command line. */
function explainConsent(name: string, error: SvcError): AdvisedError {
  const { licenses = [], permissions = [] } = (error.payload ?? {}) as LicenseRequired;
  const parts = [
    {
      isAsked: licenses.length > 0,
      what: `requires that you accept ${licenseText(licenses)}`,
      option: "--accept-license",
    },
    {
      isAsked: permissions.length > 0,
      what: `requires permissions on the host (${permissions.map(asClause).join("; ")})`,
      option: "--accept-permissions",
    },
  ].filter(({ isAsked }) => isAsked);
  const what = parts.map((part) => part.what).join(" and ");
  const options = parts.map(({ option }) => option).join(" and ");
  return new AdvisedError(
    error,
    `${name} ${what}; run this in a terminal to read and accept, or pass ${options}`,
  );
}

/** `its license (LICENSE: "Apache License")`. */
function licenseText(licenses: LicenseRequired["licenses"] = []): string {
  const names = licenses.map(({ name = "", text = "" }) => `${name}${titleText(text)}`).join(", ");
  return `its license${licenses.length === 1 ? "" : "s"} (${names})`;
}

/** The first line of a license, which usually names it. */
function titleText(text: string): string {
  const title = text.trimStart().split("\n", 1).join("").trim();
  return title === "" || title.length > 60 ? "" : `: "${title}"`;
}

/** Turns `The app uses devices.` into part of a sentence. */
function asClause(sentence: string): string {
  return sentence.replace(/^The /, "the ").replace(/\.$/, "");
}

async function askForConsent(context: CommandContext, name: string, error: SvcError): Promise<void> {
  const { licenses = [], permissions = [] } = (error.payload ?? {}) as LicenseRequired;
  const { page } = await import("../output/pager.ts");
  for (const { name: file = "", text = "" } of licenses)
    await page(context.host, escapeLines(`--- ${file} ---\n${text.trimEnd()}\n\n`), context.host.stderr);
  const question = `Accept the license of ${name}?`;
  if (licenses.length > 0 && !(await confirm(context.host, question))) {
    throw new AdvisedError(error, "nothing was changed: the license was not accepted");
  }
  for (const permission of permissions) context.note(`Permission: ${permission}`);
  if (permissions.length > 0 && !(await confirm(context.host, "Grant these permissions?"))) {
    throw new AdvisedError(error, "nothing was changed: the permissions were not granted");
  }
}
