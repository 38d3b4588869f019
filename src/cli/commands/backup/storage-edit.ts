/** `svc backup storage add|edit`: the properties of a storage, from the options that both commands take. */
import type { Command } from "commander";
import { notFound } from "../../../errors.ts";
import { absoluteIfPath } from "../../input/absolute-path.ts";
import type { CommandContext } from "../../context.ts";
import { exists } from "../../exists.ts";
import { UsageError } from "../../output/failure.ts";
import { warnIfManaged } from "../../managed.ts";
import { readsFilesHere } from "../../nodes/choose-node.ts";
import { collect, parseCount } from "../../input/option-values.ts";
import type { RunCommand } from "../../run-command.ts";
import { readInput } from "../../input/local-file.ts";
import { readSecret } from "../../input/read-secret.ts";
import { calls, type BackupStorage } from "../../client/calls.ts";

const secretQuestion = { what: "secret", prompt: "Secret key: ", option: "--secret-key-file" };

interface BucketOptions {
  readonly s3?: string;
  readonly bucket?: string;
  readonly region?: string;
  readonly prefix?: string;
  readonly accessKey?: string;
  readonly secretKeyFile?: string;
  readonly pathStyle?: boolean;
  /** False: remove the certificates. */
  readonly ca?: string | false;
}

interface StorageOptions extends BucketOptions {
  readonly dir?: string;
  /** False: remove the limit. */
  readonly maxRate?: number | false;
  /** False: remove the recipients. */
  readonly recipient?: readonly string[] | false;
}

type Bucket = NonNullable<BackupStorage["s3"]>;

const bucketFlags = {
  s3: "--s3",
  bucket: "--bucket",
  region: "--region",
  prefix: "--prefix",
  accessKey: "--access-key",
  secretKeyFile: "--secret-key-file",
  pathStyle: "--path-style",
  ca: "--ca",
} as const satisfies Record<keyof BucketOptions, string>;

export function addStorageEditCommands(parent: Command, run: RunCommand): void {
  withStorageFlags(parent.command("add").description("add a storage, or replace one"))
    .addHelpText("after", addExamples)
    .action(run(add));
  withStorageFlags(
    parent.command("edit").description("change properties of a storage; others stay unchanged"),
  )
    .option("--no-ca", "remove the CA certificates")
    .option("--no-max-rate", "remove the limit")
    .addHelpText("after", editExamples)
    .action(run(edit));
}

function withStorageFlags(command: Command): Command {
  return command
    .argument("<name>", "name of the storage, as used with --storage")
    .option("--dir <path>", "a directory on this host that root owns, such as a mounted disk")
    .option("--s3 <url>", "the endpoint of an S3 server instead; needs --bucket and --access-key")
    .option("--bucket <name>", "the bucket")
    .option("--region <name>", "the region, if the server has regions")
    .option("--prefix <text>", "prefix of all object names")
    .option("--access-key <id>", "ID of the key (default: unchanged)")
    .option("--secret-key-file <path>", "read the key's secret from a file, - for stdin (default: ask)")
    .option("--path-style", "the bucket is part of the path (default, except for Amazon)")
    .option("--no-path-style", "the bucket is part of the host name")
    .option("--ca <file>", "PEM file with CA certificates to trust for the endpoint")
    .option(
      "--max-rate <bytes>",
      "limit for uploads and downloads, in bytes per second",
      parseCount(65_536, 2 ** 50),
    )
    .option(
      "--recipient <key>",
      "encrypt archives for this age public key (repeatable; default: unchanged)",
      collect,
    )
    .option("--no-recipient", "stop encrypting archives");
}

const addExamples = `
The secret of a key comes from a file or a prompt, because every user on the host can read command lines.

Examples:
  svc backup storage add disk --dir /mnt/disk/backups
  svc backup storage add far --s3 https://s3.example.org --bucket backups --access-key ID --secret-key-file - < secret
  svc backup storage add vault --dir /mnt/disk/vault --recipient "$(age-keygen -y key.txt)"
`;

const editExamples = `
Properties without an option stay unchanged, including the key and its secret. '' clears --region and --prefix. A key is only sent to
the server that it was given for, so a new --s3 needs --access-key.

Examples:
  svc backup storage edit far --max-rate 10000000
  svc backup storage edit far --no-max-rate
  svc backup storage edit far --access-key ID --secret-key-file - < secret
  svc backup storage edit disk --dir /mnt/larger/backups
  svc backup storage edit vault --recipient "$(age-keygen -y key.txt)" --recipient "$(age-keygen -y other.txt)"
`;

async function add(context: CommandContext, name: string, options: StorageOptions): Promise<void> {
  const { dir, s3, bucket = "", accessKey } = options;
  if ((dir === undefined) === (s3 === undefined)) throw new UsageError("pass either --dir or --s3");
  if (s3 !== undefined && bucket === "") throw new UsageError("--s3 needs --bucket");
  const before = await storageCalled(context, name);
  if (isDamaged(before) && givenRecipients(options) === undefined) {
    throw new UsageError(
      `the stored settings of ${name} are damaged, including its recipients: pass --recipient or --no-recipient`,
    );
  }
  // A replaced storage keeps its key for the same server.
  if (s3 !== undefined && accessKey === undefined && before?.s3?.endpoint !== s3)
    throw new UsageError("--s3 needs --access-key");
  const none = { endpoint: "", bucket: "", region: "", prefix: "", ca: "" };
  const location =
    dir === undefined
      ? { s3: await changedBucket(context, none, options, accessKey !== undefined) }
      : { local: { dir: absoluteDir(context, dir) } };
  const storage = await context.call(calls.upsertBackupStorage, {
    name,
    ...location,
    ...rateOf(options),
    // Replacing a storage must not silently turn off its encryption.
    recipients: givenRecipients(options) ?? before?.recipients ?? [],
  });
  if (context.json) return context.printJson(storage);
  noteMissing(context, storage);
  return context.printLine(`Added ${storage.name}. Try it: svc backup storage test ${storage.name}`);
}

async function edit(context: CommandContext, name: string, options: StorageOptions): Promise<void> {
  const { dir, s3: endpoint, accessKey, secretKeyFile, maxRate, recipient } = options;
  const flags = Object.entries(bucketFlags).flatMap(([option, flag]) =>
    options[option as keyof BucketOptions] === undefined ? [] : [flag],
  );
  if (flags.length === 0 && dir === undefined && maxRate === undefined && recipient === undefined) {
    throw new UsageError("pass an option to change, such as --max-rate 10000000");
  }
  const before = await storageCalled(context, name);
  if (before === undefined) throw notFound("storage", name);
  if (isDamaged(before)) {
    throw new UsageError(
      `the stored settings of ${name} are damaged: add it again with: svc backup storage add ${name}`,
    );
  }
  const { max_bytes_per_sec: rate, ...rest } = before;
  let location;
  if (before.s3 === undefined) {
    if (flags[0] !== undefined) throw new UsageError(`${name} is a directory: ${flags[0]} is for buckets`);
    location = dir === undefined ? {} : { local: { dir: absoluteDir(context, dir) } };
  } else {
    if (dir !== undefined) throw new UsageError(`${name} is a bucket: --dir is for directories`);
    const isElsewhere = endpoint !== undefined && endpoint !== before.s3.endpoint;
    if (isElsewhere && accessKey === undefined)
      throw new UsageError("a different --s3 endpoint needs its --access-key");
    const needsSecret = isElsewhere || secretKeyFile !== undefined;
    location = { s3: await changedBucket(context, before.s3, options, needsSecret) };
  }
  warnIfManaged(context, { id: name, managed_by: before.managed_by });
  const limit = maxRate === undefined && rate !== undefined ? { max_bytes_per_sec: rate } : rateOf(options);
  const storage = await context.call(calls.upsertBackupStorage, {
    ...rest,
    ...location,
    ...limit,
    recipients: givenRecipients(options) ?? before.recipients,
  });
  if (context.json) return context.printJson(storage);
  if (dir !== undefined) noteMissing(context, storage);
  return context.printLine(`Changed ${storage.name}. Try it: svc backup storage test ${name}`);
}

/** Whether the location and the recipients are unknown. Older daemons do not report it. */
export function isDamaged(storage: Partial<BackupStorage> | undefined): boolean {
  return (storage?.problem ?? "") !== "";
}

async function storageCalled(context: CommandContext, name: string): Promise<BackupStorage | undefined> {
  const { storages } = await context.call(calls.listBackupStorages, {});
  return storages.find((storage) => storage.name === name);
}

/** A mistyped name or an unmounted disk would otherwise go unnoticed until the first archive is in the wrong place. */
function noteMissing(context: CommandContext, { local }: BackupStorage): void {
  if (local === undefined || !readsFilesHere(context.host, context.options) || exists(local.dir)) return;
  const warning = `warning: ${local.dir} does not exist yet: the first backup creates it; if a disk should be mounted there, mount it first`;
  context.note(warning);
}

function givenRecipients({ recipient }: StorageOptions): readonly string[] | undefined {
  return recipient === false ? [] : recipient;
}

function absoluteDir(context: CommandContext, dir: string): string {
  return absoluteIfPath(context, dir.startsWith("/") ? dir : `./${dir}`);
}

function rateOf({ maxRate }: StorageOptions) {
  return typeof maxRate === "number" ? { max_bytes_per_sec: maxRate } : {};
}

/** Properties without an option stay. Without a new key or secret, the daemon keeps the existing one. */
async function changedBucket(
  context: CommandContext,
  before: Bucket,
  { s3, bucket, region, prefix, accessKey, secretKeyFile, pathStyle, ca }: BucketOptions,
  needsSecret: boolean,
): Promise<Bucket> {
  return {
    ...before,
    ...(s3 !== undefined && { endpoint: s3 }),
    ...(bucket !== undefined && { bucket }),
    ...(region !== undefined && { region }),
    ...(prefix !== undefined && { prefix }),
    ...(pathStyle !== undefined && { path_style: pathStyle }),
    ...(ca !== undefined && { ca: ca === false ? "" : await readInput(context.host, ca) }),
    ...(accessKey !== undefined && { access_key: accessKey }),
    ...(needsSecret && { secret_key: await readSecret(context, secretKeyFile, secretQuestion) }),
  };
}
