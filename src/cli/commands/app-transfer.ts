/** An app from one node to another: an archive of it, streamed through this process. */
import type { CommandContext } from "../context.ts";
import { followProgress, progressLine, receiveBytes } from "../follow-progress.ts";
import { SvcError } from "../../errors.ts";
import { calls } from "../transport/calls.ts";
import type { ArchiveRef } from "./backup/archive-ref.ts";

/** The two ends, each a connection of its own. */
export interface Transfer {
  readonly from: CommandContext;
  readonly to: CommandContext;
  /** Id of the app on the node that it comes from. */
  readonly id: string;
  /** What opens an archive of a node that encrypts them; empty for none. */
  readonly identity: string;
  /** Whatever its package says, it goes on while it is read. */
  readonly mode?: "live";
  /** The archive is to be the base of another one, and stays where the app is: {@link Arrived.archive} names it. */
  readonly isBase?: boolean;
  /** An archive there that what arrived is from: only what changed since goes. */
  readonly since?: ArchiveRef | undefined;
}

export interface Arrived {
  /** Its id there. */
  readonly id: string;
  readonly bytes: number;
  readonly warnings: readonly string[];
  /** What stays where the app is. */
  readonly archive?: ArchiveRef;
}

/** Both daemons have it, and only what is removed again lies in it. */
const storage = "local";
/** Milliseconds that taking an archive away may take after Ctrl-C. */
const forgetMs = 30_000;

/**
 * The app is stopped for it only where its package says so, and stopped there. Of the archives nothing is left on either side.
 * @param asNew a new app there; else it is put in the place of the one with its id, or takes that id
 */
export async function transfer(
  { from, to, id, identity, mode, isBase = false, since }: Transfer,
  asNew: boolean,
): Promise<Arrived> {
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
    throw new SvcError("not_possible", `${id} could not be read: ${made?.error ?? "there is no archive"}`);
  }
  const here = { appId: id, storage, name: made.name };
  let stays = false;
  try {
    const there = await send({ from, to, id, identity }, here);
    try {
      const plan = { ...there, asNew, stopApp: false, identity };
      // What cannot be restored shows before anything is put in place.
      await to.invokeOnce(restoreBackup, [{ ...plan, dryRun: true }]);
      const restored = await followProgress(to, `restore ${id}`, restoreBackupStream, plan);
      stays = isBase;
      return {
        ...(isBase && { archive: here }),
        id: restored.app_id,
        bytes: restored.restored_bytes,
        warnings: [...warnings, ...restored.warnings],
      };
    } finally {
      await forget(to, there);
    }
  } finally {
    if (!stays) await forget(from, here);
  }
}

/** One that a transfer has made. */
export function archiveOf(appId: string, name: string): ArchiveRef {
  return { appId, storage, name };
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

/** Takes an archive away. What is left of it is an archive more, which its owner sees. */
export async function forget(
  node: CommandContext,
  { appId, storage: where, name }: ArchiveRef,
): Promise<void> {
  const awake = node.host.interrupted.aborted ? node.uninterrupted(forgetMs) : node;
  try {
    await awake.call(calls.deleteBackup, { app_id: appId, storage: where, name });
  } catch {
    const words = `an archive of the transfer is left: svc backup rm ${appId} ${name} --storage ${where}`;
    node.note(`warning: ${words}`);
  }
}
