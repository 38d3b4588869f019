/** Licenses and permissions that a package asks to be accepted: shown and asked about at a terminal. */
import type { ReasonPayloads, SvcError } from "../errors.ts";
import type { CommandContext } from "./context.ts";
import { AdvisedError, asSvcError } from "./failure.ts";
import { confirm, isInteractive } from "./prompt.ts";

type LicenseRequired = ReasonPayloads["license_required"];

/** What was said yes to: each for itself. */
export interface Accepted {
  readonly licenseAck: boolean;
  readonly permissionsAck: boolean;
}

export interface AcceptOptions {
  readonly acceptLicense?: boolean;
  readonly acceptPermissions?: boolean;
}

/** What the command line says yes to already. */
export function acceptedBy({ acceptLicense = false, acceptPermissions = false }: AcceptOptions): Accepted {
  return { licenseAck: acceptLicense, permissionsAck: acceptPermissions };
}

/**
 * Does something that may ask for licenses or permissions to be accepted, and once more when they were.
 * @param name what the command line calls the package or app
 * @throws SvcError `license_required` when nobody can be asked, or the answer is no
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
    const wanted = {
      licenseAck: accepted.licenseAck || licenses.length > 0,
      permissionsAck: accepted.permissionsAck || permissions.length > 0,
    };
    // What was accepted and is asked for all the same would be asked for again and again.
    const isNew =
      wanted.licenseAck !== accepted.licenseAck || wanted.permissionsAck !== accepted.permissionsAck;
    if (!isNew) throw thrown;
    // With --json the error is the daemon's own, as REST has it.
    if (!isInteractive(context.host)) throw context.json ? thrown : askedInWords(name, error);
    await askForLicense(context, error);
    return attempt(wanted);
  }
}

/** The daemon's sentence tells callers of its API how to accept; this one tells it for the command line. */
function askedInWords(name: string, error: SvcError): AdvisedError {
  const { licenses = [], permissions = [] } = (error.payload ?? {}) as LicenseRequired;
  const parts = [
    {
      isAsked: licenses.length > 0,
      what: `ships ${licenses.map((license) => license.name ?? "").join(", ")}`,
      option: "--accept-license",
    },
    {
      isAsked: permissions.length > 0,
      what: `asks for permissions on the host (${permissions.map(sentencePart).join("; ")})`,
      option: "--accept-permissions",
    },
  ].filter(({ isAsked }) => isAsked);
  const what = parts.map((part) => part.what).join(" and ");
  const options = parts.map(({ option }) => option).join(" and ");
  return new AdvisedError(
    error,
    `${name} ${what}: read it at a terminal or with --json, then pass ${options}`,
  );
}

/** `It uses devices.` within another sentence. */
function sentencePart(sentence: string): string {
  return sentence.replace(/^It /, "it ").replace(/\.$/, "");
}

async function askForLicense(context: CommandContext, error: SvcError): Promise<void> {
  const { licenses = [], permissions = [] } = (error.payload ?? {}) as LicenseRequired;
  for (const { name = "", text = "" } of licenses) {
    context.note(`--- ${name} ---`);
    context.noteLines(`${text.trimEnd()}\n`);
  }
  const names = licenses.map(({ name = "" }) => name).join(", ");
  if (licenses.length > 0 && !(await confirm(context.host, `Accept ${names}?`))) {
    throw new AdvisedError(error, "nothing was changed: the license was not accepted");
  }
  for (const permission of permissions) context.note(`It asks for: ${permission}`);
  if (permissions.length > 0 && !(await confirm(context.host, "Give it the permissions above?"))) {
    throw new AdvisedError(error, "nothing was changed: the permissions were not given");
  }
}
