/** Licenses and permissions that a package asks to be accepted: shown and asked about at a terminal. */
import { SvcError, type ReasonPayloads } from "../errors.ts";
import type { CommandContext } from "./context.ts";
import { asSvcError } from "./failure.ts";
import { confirm, isInteractive } from "./prompt.ts";
import { escapeControls, escapeLines } from "./render/escape.ts";

/**
 * Does something that may ask for licenses to be accepted, and once more when they were.
 * @param accepted what the command line says already
 * @throws SvcError `license_required` when nobody can be asked, or the answer is no
 */
export async function acceptingLicenses<T>(
  context: CommandContext,
  accepted: boolean,
  attempt: (licenseAck: boolean) => Promise<T>,
): Promise<T> {
  try {
    return await attempt(accepted);
  } catch (thrown) {
    const error = asSvcError(thrown);
    if (error?.reason !== "license_required" || accepted || !isInteractive(context.host)) throw thrown;
    await askForLicense(context, error);
    return attempt(true);
  }
}

async function askForLicense(context: CommandContext, error: SvcError): Promise<void> {
  const payload = error.payload as ReasonPayloads["license_required"];
  const { licenses = [], permissions = [] } = payload;
  for (const { name = "", text = "" } of licenses) {
    context.note(`${escapeControls(`--- ${name} ---`)}\n${escapeLines(text.trimEnd())}\n`);
  }
  for (const permission of permissions) context.note(`It asks for: ${escapeControls(permission)}`);
  const names = licenses.map(({ name = "" }) => name);
  const what = [...names, ...(permissions.length > 0 ? ["the permissions above"] : [])].join(", ");
  if (await confirm(context.host, `Accept ${escapeControls(what)}?`)) return;
  const message = "nothing was changed: the license was not accepted";
  throw new SvcError("failed_precondition", "license_required", message, { payload });
}
