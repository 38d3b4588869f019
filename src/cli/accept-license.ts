/** Licenses and permissions that a package asks to be accepted: shown and asked about at a terminal. */
import type { ReasonPayloads, SvcError } from "../errors.ts";
import type { CommandContext } from "./context.ts";
import { AdvisedError, asSvcError } from "./failure.ts";
import { confirm, isInteractive } from "./prompt.ts";
import { escapeControls, escapeLines } from "./render/escape.ts";

type LicenseRequired = ReasonPayloads["license_required"];

/**
 * Does something that may ask for licenses to be accepted, and once more when they were.
 * @param name what the command line calls the package or app
 * @param accepted what the command line says already
 * @throws SvcError `license_required` when nobody can be asked, or the answer is no
 */
export async function acceptingLicenses<T>(
  context: CommandContext,
  name: string,
  accepted: boolean,
  attempt: (licenseAck: boolean) => Promise<T>,
): Promise<T> {
  try {
    return await attempt(accepted);
  } catch (thrown) {
    const error = asSvcError(thrown);
    // With --json the error is the daemon's own, as REST has it.
    if (error?.reason !== "license_required" || accepted) throw thrown;
    if (!isInteractive(context.host)) throw context.json ? thrown : askedInWords(name, error);
    await askForLicense(context, error);
    return attempt(true);
  }
}

/** The daemon's sentence tells callers of its API how to accept; this one tells it for the command line. */
function askedInWords(name: string, error: SvcError): AdvisedError {
  const { licenses = [], permissions = [] } = (error.payload ?? {}) as LicenseRequired;
  const what = [
    ...(licenses.length > 0 ? [`ships ${licenses.map((license) => license.name ?? "").join(", ")}`] : []),
    ...(permissions.length > 0 ? ["asks for permissions on the host"] : []),
  ];
  const advice = "read it at a terminal or with --json, then pass --accept-license";
  return new AdvisedError(error, `${name} ${what.join(" and ") || "asks to be accepted"}: ${advice}`);
}

async function askForLicense(context: CommandContext, error: SvcError): Promise<void> {
  const { licenses = [], permissions = [] } = (error.payload ?? {}) as LicenseRequired;
  for (const { name = "", text = "" } of licenses) {
    context.note(`${escapeControls(`--- ${name} ---`)}\n${escapeLines(text.trimEnd())}\n`);
  }
  for (const permission of permissions) context.note(`It asks for: ${escapeControls(permission)}`);
  const names = licenses.map(({ name = "" }) => name);
  const what = [...names, ...(permissions.length > 0 ? ["the permissions above"] : [])].join(", ");
  if (await confirm(context.host, `Accept ${escapeControls(what)}?`)) return;
  throw new AdvisedError(error, "nothing was changed: the license was not accepted");
}
