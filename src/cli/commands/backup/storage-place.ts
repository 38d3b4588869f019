/** `svc backup storage add|edit`: what a storage is, from the options that both take. */
import type { Command } from "commander";
import { notFound } from "../../../errors.ts";
import { absoluteIfPath } from "../../absolute-path.ts";
import type { CommandContext } from "../../context.ts";
import { exists } from "../../exists.ts";
import { UsageError } from "../../failure.ts";
import { warnIfManaged } from "../../managed.ts";
import { readsFilesHere } from "../../nodes/choose-node.ts";
import { collect, parseCount } from "../../option-values.ts";
import type { RunCommand } from "../../run-command.ts";
import { readInput } from "../../read-input.ts";
import { readSecret } from "../../read-secret.ts";
import { calls, type BackupStorage } from "../../transport/calls.ts";

const secretQuestion = { what: "secret", prompt: "Secret key: ", option: "--secret-key-file" };

interface BucketOptions {
  readonly s3?: string;
  readonly bucket?: string;
  readonly region?: string;
  readonly prefix?: string;
  readonly accessKey?: string;
  readonly secretKeyFile?: string;
  readonly pathStyle?: boolean;
  /** False: none any more. */
  readonly ca?: string | false;
}

interface PlaceOptions extends BucketOptions {
  readonly dir?: string;
  /** False: none any more. */
  readonly maxRate?: number | false;
  /** False: none any more. */
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

export function addPlaceCommands(parent: Command, run: RunCommand): void {
  withPlaceFlags(parent.command("add").description("add a storage, or write over one"))
    .addHelpText("after", addExamples)
    .action(run(add));
  withPlaceFlags(
    parent.command("edit").description("change what the options say of a storage, and nothing else"),
  )
    .option("--no-ca", "no such certificates any more")
    .option("--no-max-rate", "as many bytes per second as possible again")
    .addHelpText("after", editExamples)
    .action(run(edit));
}

function withPlaceFlags(command: Command): Command {
  return command
    .argument("<name>", "what --storage calls it")
    .option("--dir <path>", "a directory of this host that is root's, such as a mounted disk")
    .option("--s3 <url>", "or the endpoint of an S3 server, with --bucket and --access-key")
    .option("--bucket <name>", "the bucket")
    .option("--region <name>", "the region, where the server has some")
    .option("--prefix <text>", "what all names in the bucket begin with")
    .option("--access-key <id>", "the key's id (default: that of before)")
    .option("--secret-key-file <path>", "read the key's secret from a file, - for stdin (default: ask)")
    .option("--path-style", "the bucket is part of the path (default: everywhere but at Amazon's)")
    .option("--no-path-style", "the bucket is part of the host name")
    .option("--ca <file>", "certificates, as PEM, of an authority that signs for the endpoint")
    .option("--max-rate <bytes>", "most bytes per second, there and back", parseCount(65_536, 2 ** 50))
    .option(
      "--recipient <key>",
      "encrypt what goes there for this age public key; again for more (default: those of before)",
      collect,
    )
    .option("--no-recipient", "encrypt it no longer");
}

const addExamples = `
The secret of a key is read from a file or asked for: everybody on the host can read command lines.

Examples:
  svc backup storage add disk --dir /mnt/disk/backups
  svc backup storage add far --s3 https://s3.example.org --bucket backups --access-key ID --secret-key-file - < secret
  svc backup storage add vault --dir /mnt/disk/vault --recipient "$(age-keygen -y key.txt)"
`;

const editExamples = `
What is not told stays as it is, the key and its secret too; '' empties --region and --prefix. A key goes to the server that it
was given for alone: another --s3 needs --access-key.

Examples:
  svc backup storage edit far --max-rate 10000000
  svc backup storage edit far --no-max-rate
  svc backup storage edit far --access-key ID --secret-key-file - < secret
  svc backup storage edit disk --dir /mnt/larger/backups
  svc backup storage edit vault --recipient "$(age-keygen -y key.txt)" --recipient "$(age-keygen -y other.txt)"
`;

async function add(context: CommandContext, name: string, options: PlaceOptions): Promise<void> {
  const { dir, s3, bucket = "", accessKey } = options;
  if ((dir === undefined) === (s3 === undefined)) throw new UsageError("pass either --dir or --s3");
  if (s3 !== undefined && bucket === "") throw new UsageError("--s3 needs --bucket");
  const before = await storageCalled(context, name);
  if (isDamaged(before) && toldRecipients(options) === undefined) {
    throw new UsageError(
      `what svc keeps of ${name} is damaged, also for whom it encrypts: say --recipient or --no-recipient`,
    );
  }
  // What is written over keeps its key, for the same server.
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
    // Whoever writes over a storage does not end its encryption without a word.
    recipients: toldRecipients(options) ?? before?.recipients ?? [],
  });
  if (context.json) return context.printJson(storage);
  noteMissing(context, storage);
  return context.printLine(`Added ${storage.name}. Try it: svc backup storage test ${storage.name}`);
}

async function edit(context: CommandContext, name: string, options: PlaceOptions): Promise<void> {
  const { dir, s3: endpoint, accessKey, secretKeyFile, maxRate, recipient } = options;
  const flags = Object.entries(bucketFlags).flatMap(([option, flag]) =>
    options[option as keyof BucketOptions] === undefined ? [] : [flag],
  );
  if (flags.length === 0 && dir === undefined && maxRate === undefined && recipient === undefined) {
    throw new UsageError("say what to change, such as --max-rate 10000000");
  }
  const before = await storageCalled(context, name);
  if (before === undefined) throw notFound("storage", name);
  if (isDamaged(before)) {
    throw new UsageError(
      `what svc keeps of ${name} is damaged: write it again, svc backup storage add ${name}`,
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
    if (isElsewhere && accessKey === undefined) throw new UsageError("another --s3 needs --access-key");
    const needsSecret = isElsewhere || secretKeyFile !== undefined;
    location = { s3: await changedBucket(context, before.s3, options, needsSecret) };
  }
  warnIfManaged(context, { id: name, managed_by: before.managed_by });
  const kept = maxRate === undefined && rate !== undefined ? { max_bytes_per_sec: rate } : rateOf(options);
  const storage = await context.call(calls.upsertBackupStorage, {
    ...rest,
    ...location,
    ...kept,
    recipients: toldRecipients(options) ?? before.recipients,
  });
  if (context.json) return context.printJson(storage);
  if (dir !== undefined) noteMissing(context, storage);
  return context.printLine(`Changed ${storage.name}. Try it: svc backup storage test ${name}`);
}

/** Where it is and for whom it encrypts is not known. A daemon of before says nothing of it. */
export function isDamaged(storage: Partial<BackupStorage> | undefined): boolean {
  return (storage?.problem ?? "") !== "";
}

async function storageCalled(context: CommandContext, name: string): Promise<BackupStorage | undefined> {
  const { storages } = await context.call(calls.listBackupStorages, {});
  return storages.find((storage) => storage.name === name);
}

/** A name that was mistyped, or a disk that is not mounted, shows when the first archive lies elsewhere. */
function noteMissing(context: CommandContext, { local }: BackupStorage): void {
  if (local === undefined || !readsFilesHere(context.host, context.options) || exists(local.dir)) return;
  const said = `warning: there is no ${local.dir} yet: the first backup makes it; where a disk belongs there, mount that first`;
  context.note(said);
}

function toldRecipients({ recipient }: PlaceOptions): readonly string[] | undefined {
  return recipient === false ? [] : recipient;
}

function absoluteDir(context: CommandContext, dir: string): string {
  return absoluteIfPath(context, dir.startsWith("/") ? dir : `./${dir}`);
}

function rateOf({ maxRate }: PlaceOptions) {
  return typeof maxRate === "number" ? { max_bytes_per_sec: maxRate } : {};
}

/** What is not in the options stays; without a key of its own or a secret, the daemon keeps those that it has. */
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
