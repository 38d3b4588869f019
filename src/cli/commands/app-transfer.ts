/** Transfers an app from one node to another: as an archive, streamed through this process. */
import type { CommandContext } from "../context.ts";
import { followProgress, progressLine, receiveBytes } from "../output/follow-progress.ts";
import { SvcError } from "../../errors.ts";
import { acceptingLicenses, type Accepted } from "../input/accept-license.ts";
import { calls } from "../client/calls.ts";
import type { ArchiveRef } from "./backup/archive-ref.ts";

/** The two nodes, each with its connection. */
export interface Transfer {
  readonly from: CommandContext;
  readonly to: CommandContext;
  /** ID of the app on the source node. */
  readonly id: string;
  /** uid of the app's owner, as the source node reports it. */
  readonly owner: number;
  /** The key for an archive of a node that encrypts archives; empty for none. */
  readonly identity: string;
  /** The consents to licenses and permissions on the target node. */
  readonly accepted: Accepted;
  /** Keeps the app running during the backup, whatever its package specifies. */
  readonly mode?: "live";
  /** Keeps the archive on the source node as the base of a later one; {@link TransferResult.archive} names it. */
  readonly isBase?: boolean;
  /** An archive on the source node that the target was restored from: only changes since then are sent. */
  readonly since?: ArchiveRef | undefined;
}

export interface TransferResult {
  /** The app's ID on the target node. */
  readonly id: string;
  readonly bytes: number;
  readonly warnings: readonly string[];
  /** With what was accepted at the terminal. */
  readonly accepted: Accepted;
  /** The archive that stays on the source node. */
  readonly archive?: ArchiveRef;
}

/** Both daemons have this storage. A transfer deletes its archives from it. */
const storage = "local";
/** Milliseconds after Ctrl-C for deleting an archive. */
const removeTimeoutMs = 30_000;

/**
 * Stops the app only if its package specifies that for backups; it then stays stopped. Leaves no archives on
 * either side. The source node must not choose which app, or whose, is written on the target node.
 * @param asNew makes a new app on the target node; else the archive replaces the app with the same ID, or
 * takes that ID
 */
export async function transfer(
  { from, to, id, owner, identity, accepted: given, mode, isBase = false, since }: Transfer,
  asNew: boolean,
): Promise<TransferResult> {
  const { BackupService } = await import("../../../gen/svc/v1/backup_pb.ts");
  const request = {
    ...{ appId: id, storages: [storage], ...(mode === undefined ? {} : { mode }) },
    ...(isBase && { marks: true }),
    ...(since !== undefined && { since: since.name }),
  };
  const { createBackupStream, restoreBackup, restoreBackupStream } = BackupService.method;
  const { results, warnings } = await followProgress(from, `read ${id}`, createBackupStream, request);
  const [made] = results;
  if (made === undefined || made.error !== "") {
    throw new SvcError("not_possible", `could not back up ${id}: ${made?.error ?? "there is no archive"}`);
  }
  const here = { appId: id, storage, name: made.name };
  let stays = false;
  try {
    const sent = await send({ from, to, id, identity }, here);
    try {
      requireSame("ID", sent.appId, id);
      const plan = { ...sent, asNew, stopApp: false, identity };
      // Check first, so that an archive that cannot be restored changes nothing.
      const checked = await to.invokeOnce(restoreBackup, [{ ...plan, dryRun: true }]);
      requireSame("owner", checked.owner, owner);
      let accepted = given;
      const restored = await acceptingLicenses(to, id, given, (consents) => {
        accepted = consents;
        return followProgress(to, `restore ${id}`, restoreBackupStream, { ...plan, ...consents });
      });
      stays = isBase;
      return {
        ...(isBase && { archive: here }),
        id: restored.app_id,
        bytes: restored.restored_bytes,
        accepted,
        warnings: [...warnings, ...restored.warnings],
      };
    } finally {
      await removeArchive(to, sent);
    }
  } finally {
    if (!stays) await removeArchive(from, here);
  }
}

/** An archive that a transfer made. */
export function transferArchive(appId: string, name: string): ArchiveRef {
  return { appId, storage, name };
}

/** @throws SvcError `not_possible` if the archive is of something else than the app that the user named */
function requireSame(what: "ID" | "owner", found: string | number, expected: string | number): void {
  if (found === expected) return;
  const message = `the source node sent an archive of another app: its ${what} is "${found}" instead of "${expected}"; nothing was restored`;
  throw new SvcError("not_possible", message);
}

async function send(
  { from, to, id, identity }: Pick<Transfer, "from" | "to" | "id" | "identity">,
  archive: ArchiveRef,
): Promise<ArchiveRef> {
  const { BackupService } = await import("../../../gen/svc/v1/backup_pb.ts");
  using line = progressLine(from, `send ${id}`);
  const pieces = receiveBytes(line, from.invoke(BackupService.method.downloadBackup, [archive]));
  const sent = await to.invokeOnce(BackupService.method.uploadBackup, requests(pieces, identity));
  return { appId: sent.app_id, storage: sent.storage, name: sent.name };
}

async function* requests(bytes: AsyncIterable<Uint8Array>, identity: string) {
  yield { storage, identity };
  for await (const data of bytes) yield { storage, content: { data } };
}

/** Deletes an archive. On failure the archive stays, and its owner can see it. */
export async function removeArchive(
  node: CommandContext,
  { appId, storage: where, name }: ArchiveRef,
): Promise<void> {
  const awake = node.host.interrupted.aborted ? node.uninterrupted(removeTimeoutMs) : node;
  try {
    await awake.call(calls.deleteBackup, { app_id: appId, storage: where, name });
  } catch {
    const words = `could not delete an archive of the transfer; delete it with: svc backup rm ${appId} ${name} --storage ${where}`;
    node.note(`warning: ${words}`);
  }
}
