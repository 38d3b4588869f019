/** Archives as command lines name them: an app, and the name of an archive or the word `latest`. */
import { SvcError } from "../../../errors.ts";
import type { CommandContext } from "../../context.ts";
import { calls } from "../../transport/calls.ts";

export interface ArchiveRef {
  appId: string;
  storage: string;
  name: string;
}

export interface StorageOption {
  readonly storage?: string;
}

export const latest = "latest";
export const nameHelp = `an archive as svc backup ls shows it, or ${latest}`;
export const storageHelp = "the storage that has it (default: the first that does)";

/** Asks the storages where it is. @throws SvcError `not_found` */
export async function findArchive(
  context: CommandContext,
  appId: string,
  name: string,
  { storage = "" }: StorageOption,
): Promise<ArchiveRef> {
  if (storage !== "" && name !== latest) return { appId, storage, name };
  const { backups, errors } = await context.call(calls.listBackups, { app_id: appId, storage });
  for (const { storage: which, error } of errors) context.note(`warning: storage ${which}: ${error}`);
  const found = name === latest ? backups[0] : backups.find((each) => each.name === name);
  if (found !== undefined) return { appId, storage: found.storage, name: found.name };
  throw new SvcError("not_found", "not_found", `no backup "${name}" of app "${appId}"`);
}
