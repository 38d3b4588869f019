/**
 * Services that may not write where they keep data. Users' containers run as their owner, to whom all their data belong. Root's run
 * as their images say: a volume begins as its image's user has it, and a directory of the app as root's.
 */
import { relative } from "node:path";
import type { Identity } from "../../identity/identity.ts";
import { isInside } from "../../lib/is-inside.ts";
import type { JsonObject } from "../../lib/json.ts";
import { ownerSpec } from "../container-policy.ts";
import type { RunnableApp } from "../runtime.ts";
import { recordOf } from "./compose-values.ts";
import { serviceClaims } from "./service-claims.ts";

/**
 * A sentence for each service and directory of an app of root's.
 * @param imageUser whom the image of a service says; empty for root
 */
export async function unwritableBinds(
  app: Pick<RunnableApp, "directory" | "uid">,
  { services }: JsonObject,
  identity: Pick<Identity, "stat" | "user">,
  imageUser: (service: string) => Promise<string>,
): Promise<string[]> {
  const owner = ownerSpec(identity.user);
  const sentences: string[] = [];
  for (const [service, described] of Object.entries(recordOf(services))) {
    const { subject, user, binds } = serviceClaims(service, recordOf(described), new Set());
    const written = binds.filter(({ source, readOnly }) => !readOnly && isInside(app.directory, source));
    if (written.length === 0) continue;
    const whole = user || (await imageUser(service));
    const [name = ""] = whole.split(":");
    if (["", "0", "root", String(app.uid)].includes(name)) continue;
    for (const { source } of written) {
      const path = relative(app.directory, source);
      const entry = await identity.stat(app.directory, path);
      // A file is mostly read alone, whatever is said of it; a directory of others has somebody given to them.
      if (entry !== undefined && (entry.type === "file" || entry.uid !== app.uid)) continue;
      sentences.push(
        `${subject} runs as "${whole}" and cannot write to ${path}, which belongs to "${owner}": ` +
          `have a regular user install the package, as whom all of it runs, or set the service's "user" to that`,
      );
    }
  }
  return sentences;
}
