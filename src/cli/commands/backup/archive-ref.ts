/** Archives on the command line: an app and the name of an archive, or `latest`. */
import type { Command } from "commander";
import { invalidField, notFound } from "../../../errors.ts";
import type { CommandContext } from "../../context.ts";
import { ifFound, UsageError } from "../../output/failure.ts";
import { readInput } from "../../input/local-file.ts";
import { calls, type BackupArchive } from "../../client/calls.ts";

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

interface ArchiveCommandOptions {
  /** The description of the app's argument. */
  readonly app?: string | undefined;
  /** Whether the name of the archive must be complete. */
  readonly isExact?: boolean;
  /** The argument of the archive, as help shows it. */
  readonly argument?: string;
}

/** Adds a command about archives of an app. */
export function archiveCommand(
  parent: Command,
  name: string,
  description: string,
  { app = "the app", isExact = false, argument = "<archive>" }: ArchiveCommandOptions = {},
): Command {
  const prefix = isExact ? "" : ", or the start of its name";
  return parent
    .command(name)
    .description(description)
    .argument("<id>", app)
    .argument(argument, `an archive as svc backup ls shows it${prefix}, or ${latest}`)
    .option("--storage <name>", "the storage of the archive (default: the first that has it)");
}

/** Adds a command that opens an archive. */
export function openingCommand(parent: Command, name: string, description: string, app?: string): Command {
  return archiveCommand(parent, name, description, { app }).option("--identity <file>", identityHelp);
}

/**
 * Looks for the archive on the storages.
 * @param options `isExact`: the name must be complete
 * @throws SvcError `not_found`
 */
export async function findArchive(
  context: CommandContext,
  appId: string,
  name: string,
  { storage = "", isExact = false }: StorageOption & { readonly isExact?: boolean },
): Promise<ArchiveRef> {
  if (storage !== "" && name.includes(".")) return { appId, storage, name };
  const { backups, errors } = await context.call(calls.listBackups, { app_id: appId, storage });
  for (const { storage: which, error } of errors) context.note(`warning: storage ${which}: ${error}`);
  const found =
    name === latest
      ? await newestOf(context, appId, backups)
      : (backups.find((each) => each.name === name) ??
        (isExact ? undefined : onlyOneWithPrefix(appId, name, backups)));
  if (found !== undefined) return { appId, storage: found.storage, name: found.name };
  const onStorage = storage === "" ? "" : ` on ${storage}`;
  const what = name === latest ? "backup" : `backup "${name}"`;
  throw notFound(
    "backup",
    name,
    `no ${what} of app "${appId}"${onStorage}; list the backups with: svc backup ls`,
  );
}

/** @throws SvcError `invalid_request` if several archives have the prefix */
function onlyOneWithPrefix(
  appId: string,
  prefix: string,
  backups: readonly BackupArchive[],
): BackupArchive | undefined {
  const found = backups.filter(({ name }) => name.startsWith(prefix));
  // Each storage may have a copy.
  const names = new Set(found.map(({ name }) => name));
  if (names.size > 1)
    throw invalidField(
      "name",
      `"${prefix}" is the start of ${names.size} backups of "${appId}": type more of it`,
    );
  return found[0];
}

/** Milliseconds by which the clocks of the node and of this host may differ. */
const maxSkewMs = 86_400_000;

/**
 * The newest archive that this node made for the app's owner. Others take precedence over those that were made while the
 * node's clock was ahead. If the app is gone, another node's archive is used, too:
 * it may have been the app's node.
 * @throws SvcError `invalid_request` if the archives belong to several users or other nodes
 */
async function newestOf(
  context: CommandContext,
  appId: string,
  backups: readonly BackupArchive[],
): Promise<BackupArchive | undefined> {
  const ambiguous = (what: string) =>
    new UsageError(
      `"${appId}" has backups of ${what}; pass the name of an archive instead of "latest", such as ${backups[0]?.name ?? ""}`,
    );
  const all = backups.filter((each) => each.from_this_node);
  const past = all.filter((each) => Date.parse(each.created_at ?? "") <= context.host.now() + maxSkewMs);
  const own = past.length > 0 ? past : all;
  const candidates = own.length > 0 ? own : backups;
  const owners = new Set(candidates.map((each) => each.owner));
  if (candidates.length === 0 || (own.length > 0 && owners.size === 1)) return candidates[0];
  const app = await ifFound(context.call(calls.getApp, { id: appId }));
  if (app === undefined && owners.size > 1) throw ambiguous("several owners");
  if (own.length > 0) return own.find((each) => each.owner === app?.owner);
  const [node, ...others] = new Set(backups.map((each) => each.node));
  if (others.length > 0) throw ambiguous(`several other nodes (${[node, ...others].join(", ")})`);
  if (app !== undefined) throw ambiguous("another node only");
  context.note(`This node has no backup of ${appId}; using the newest one of node ${node}.`);
  return backups[0];
}
