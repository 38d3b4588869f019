/** Archives on the command line: an app and the name of an archive, or `latest`. */
import type { Command } from "commander";
import { invalidField, notFound } from "../../../errors.ts";
import type { CommandContext } from "../../context.ts";
import { ifFound } from "../../output/failure.ts";
import { readInput } from "../../input/read-input.ts";
import { calls } from "../../client/calls.ts";

export interface ArchiveRef {
  readonly appId: string;
  readonly storage: string;
  readonly name: string;
}

export interface StorageOption {
  readonly storage?: string;
}

export interface IdentityOption {
  readonly identity?: string;
}

export const identityHelp = "identity file of age-keygen for an encrypted archive; - for stdin";

/** Reads the identity from a file or stdin: other users on the host can read arguments. Empty if none is given. */
export async function readIdentity(context: CommandContext, { identity }: IdentityOption): Promise<string> {
  return identity === undefined ? "" : readInput(context.host, identity);
}

export const latest = "latest";

/** Adds a command about one archive. */
export function archiveCommand(parent: Command, name: string, description: string, app = "the app"): Command {
  return parent
    .command(name)
    .description(description)
    .argument("<id>", app)
    .argument("<name>", `an archive as svc backup ls shows it, or ${latest}`)
    .option("--storage <name>", "the storage of the archive (default: the first that has it)");
}

/** Adds a command that opens an archive. */
export function openingCommand(parent: Command, name: string, description: string, app?: string): Command {
  return archiveCommand(parent, name, description, app).option("--identity <file>", identityHelp);
}

/** Looks for the archive on the storages. @throws SvcError `not_found` */
export async function findArchive(
  context: CommandContext,
  appId: string,
  name: string,
  { storage = "" }: StorageOption,
): Promise<ArchiveRef> {
  if (storage !== "" && name !== latest) return { appId, storage, name };
  const { backups, errors } = await context.call(calls.listBackups, { app_id: appId, storage });
  for (const { storage: which, error } of errors) context.note(`warning: storage ${which}: ${error}`);
  const owner = name === latest ? await ownerOf(context, appId, backups) : undefined;
  const found = backups.find((each) => (name === latest ? each.owner === owner : each.name === name));
  if (found !== undefined) return { appId, storage: found.storage, name: found.name };
  const place = storage === "" ? "" : ` on ${storage}`;
  const what = name === latest ? "backup" : `backup "${name}"`;
  throw notFound(
    "backup",
    name,
    `no ${what} of app "${appId}"${place}; list the backups with: svc backup ls`,
  );
}

/**
 * The owner of the archives: the app's owner.
 * @throws SvcError `invalid_request` if the app is gone and several users have archives of it
 */
async function ownerOf(
  context: CommandContext,
  appId: string,
  backups: readonly { owner: number }[],
): Promise<number | undefined> {
  const [owner, ...others] = new Set(backups.map((each) => each.owner));
  if (others.length === 0) return owner;
  const app = await ifFound(context.call(calls.getApp, { id: appId }));
  if (app !== undefined) return app.owner;
  throw invalidField("name", `"${appId}" has backups of several owners: pass the name of an archive`);
}
