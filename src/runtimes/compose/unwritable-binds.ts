/**
 * Warns about services that cannot write to their data. Users' containers run as their owner, who owns all their
 * data. Root's containers run as their images' users, but an app's directories belong to root.
 */
import { relative } from "node:path";
import type { UserHelper } from "../../run-as/user-helper.ts";
import { isInside } from "../../lib/paths.ts";
import type { JsonObject } from "../../lib/json.ts";
import { ownerSpec } from "../containers/container-policy.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { recordOf } from "./compose-values.ts";
import { serviceClaims } from "./service-claims.ts";

/**
 * One warning per service and directory of root's app.
 * @param imageUser the user that a service's image sets; empty for root
 */
export async function unwritableBinds(
  app: Pick<RunnableApp, "directory" | "uid">,
  { services }: JsonObject,
  userHelper: Pick<UserHelper, "stat" | "user">,
  imageUser: (service: string) => Promise<string>,
): Promise<string[]> {
  const owner = ownerSpec(userHelper.user);
  const sentences: string[] = [];
  for (const [service, described] of Object.entries(recordOf(services))) {
    const { subject, user, binds } = serviceClaims(service, recordOf(described), {});
    const written = binds.filter(({ source, readOnly }) => !readOnly && isInside(app.directory, source));
    if (written.length === 0) continue;
    const whole = user || (await imageUser(service));
    const [name = ""] = whole.split(":");
    if (["", "0", "root", String(app.uid)].includes(name)) continue;
    for (const { source } of written) {
      const path = relative(app.directory, source);
      const entry = await userHelper.stat(app.directory, path);
      // Files are usually only read, even if mounted writable; a directory with another owner was prepared on
      // purpose.
      if (entry !== undefined && (entry.type === "file" || entry.uid !== app.uid)) continue;
      sentences.push(
        `${subject} runs as "${whole}" and cannot write to ${path}, which belongs to "${owner}"; ` +
          `set the service's "user" to "${owner}", or have a regular user install the package`,
      );
    }
  }
  return sentences;
}
