/**
 * Directories of root's compose apps that services write to as another user. Users' containers run as their owner, who
 * owns all their data. Root's containers run as their images' users, but an app's directories belong to root.
 */
import { join, relative } from "node:path";
import type { UserHelper } from "../../run-as/user-helper.ts";
import type { UserHelpers } from "../../run-as/user-helpers.ts";
import { isInside } from "../../lib/paths.ts";
import type { JsonObject } from "../../lib/json.ts";
import { appTree } from "../app-tree.ts";
import { ownerSpec } from "../containers/container-policy.ts";
import type { RunnableApp } from "../runnable-app.ts";
import { recordOf } from "./compose-values.ts";
import { serviceClaims } from "./service-claims.ts";

interface DataOwner {
  readonly uid: number;
  /** Absent if only the container knows it. */
  readonly gid?: number;
}

export interface ServiceData {
  /** Data directories that belong to root and become their service's, by path relative to the app. */
  readonly owners: ReadonlyMap<string, DataOwner>;
  /** One warning per service and directory that it cannot write to. */
  readonly warnings: readonly string[];
}

/**
 * Data becomes the service's if all services that write to it run as one numeric user. A directory with another owner
 * than root was prepared on purpose.
 * @param imageUser the user that a service's image sets; empty for root
 */
export async function serviceData(
  app: Pick<RunnableApp, "directory" | "uid">,
  { services }: JsonObject,
  userHelper: Pick<UserHelper, "stat" | "user">,
  imageUser: (service: string) => Promise<string>,
): Promise<ServiceData> {
  const writers: { subject: string; user: string; path: string }[] = [];
  for (const [service, described] of Object.entries(recordOf(services))) {
    const { subject, user: set, binds } = serviceClaims(service, recordOf(described), {});
    const written = binds.filter(({ source, readOnly }) => !readOnly && isInside(app.directory, source));
    if (written.length === 0) continue;
    const user = set || (await imageUser(service));
    if (["", "0", "root", String(app.uid)].includes(user.split(":")[0] ?? "")) continue;
    for (const { source } of written) {
      const path = relative(app.directory, source);
      const entry = await userHelper.stat(app.directory, path);
      // Files are usually only read, even if mounted writable.
      if (entry === undefined || (entry.type !== "file" && entry.uid === app.uid))
        writers.push({ subject, user, path });
    }
  }
  const owners = new Map<string, DataOwner>();
  const warnings: string[] = [];
  const rootSpec = ownerSpec(userHelper.user);
  for (const { subject, user, path } of writers) {
    const owner = ownerOf(user);
    const isOnly = writers.every((other) => other.path !== path || other.user === user);
    if (owner !== undefined && isOnly && app.uid === 0 && isInside(appTree.data, path))
      owners.set(path, owner);
    else
      warnings.push(
        `${subject} runs as "${user}" and cannot write to ${path}, which belongs to "${rootSpec}"; ` +
          `set the service's "user" to "${rootSpec}", or have a regular user install the package`,
      );
  }
  return { owners, warnings };
}

/** Without it, services with a user of their own could not write to new or restored directories of root's apps. */
export async function giveData(
  app: Pick<RunnableApp, "directory" | "uid">,
  { owners }: ServiceData,
  userHelpers: Pick<UserHelpers, "hostFiles">,
): Promise<void> {
  const files = await userHelpers.hostFiles(app.uid);
  for (const [path, owner] of owners)
    await files.setAttributes(join(app.directory, path), { ...owner, recursive: true });
}

function ownerOf(user: string): DataOwner | undefined {
  const [, uid, gid] = /^(\d{1,9})(?::(\d{1,9}))?$/.exec(user) ?? [];
  if (uid === undefined) return undefined;
  return { uid: Number(uid), ...(gid !== undefined && { gid: Number(gid) }) };
}
