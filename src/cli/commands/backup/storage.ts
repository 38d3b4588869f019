/** `svc backup storage …`: where archives are kept. */
import type { Command } from "commander";
import { absoluteIfPath } from "../../absolute-path.ts";
import type { CommandContext } from "../../context.ts";
import { ReportedError, UsageError } from "../../failure.ts";
import { parseCount } from "../../option-values.ts";
import type { RunCommand } from "../../run-command.ts";
import { askSecret, isInteractive } from "../../prompt.ts";
import { readInput } from "../../read-input.ts";
import { escapeControls } from "../../render/escape.ts";
import type { Column } from "../../render/table.ts";
import { calls, type BackupStorage } from "../../transport/calls.ts";

interface AddOptions {
  readonly dir?: string;
  readonly s3?: string;
  readonly bucket?: string;
  readonly region?: string;
  readonly prefix?: string;
  readonly accessKey?: string;
  readonly secretKeyFile?: string;
  readonly pathStyle?: boolean;
  readonly ca?: string;
  readonly maxRate?: number;
}

export function addStorageCommand(parent: Command, run: RunCommand): void {
  const storage = parent.command("storage").description("list, add, try and remove storages");
  storage
    .command("ls", { isDefault: true })
    .alias("list")
    .description("list the storages (also: svc backup storage)")
    .action(run(list));
  storage
    .command("add")
    .description("add a storage, or change one")
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
    .addHelpText("after", addExamples)
    .action(run(add));
  storage
    .command("test")
    .description("list, write, read and delete there, and say what works")
    .argument("<name>", "the storage")
    .action(run(test));
  storage
    .command("rm")
    .alias("remove")
    .description("forget a storage; its archives stay where they are")
    .argument("<name>", "the storage")
    .action(run(remove));
}

const columns: readonly Column<BackupStorage>[] = [
  { title: "NAME", value: ({ name }) => name },
  { title: "KIND", value: ({ s3 }) => (s3 === undefined ? "local" : "s3") },
  {
    title: "WHERE",
    value: ({ s3, local }) => (s3 === undefined ? (local?.dir ?? "") : `${s3.endpoint}/${s3.bucket}`),
  },
];

async function list(context: CommandContext): Promise<void> {
  const answer = await context.call(calls.listBackupStorages, {});
  if (context.json) return context.printJson(answer);
  return context.printTable(columns, answer.storages);
}

const addExamples = `
Examples:
  svc backup storage add disk --dir /mnt/disk/backups
  svc backup storage add far --s3 https://s3.example.org --bucket backups --access-key ID --secret-key-file - < secret
`;

async function add(context: CommandContext, name: string, options: AddOptions): Promise<void> {
  const { dir, s3, maxRate } = options;
  if ((dir === undefined) === (s3 === undefined)) throw new UsageError("pass either --dir or --s3");
  const location =
    dir === undefined
      ? { s3: await bucketOf(context, s3 ?? "", options) }
      : { local: { dir: dir.startsWith("/") ? dir : absoluteIfPath(`./${dir}`) } };
  const rate = maxRate === undefined ? {} : { max_bytes_per_sec: maxRate };
  const storage = await context.call(calls.upsertBackupStorage, { name, ...location, ...rate });
  if (context.json) return context.printJson(storage);
  return context.print(
    `${escapeControls(`Added ${storage.name}. Use it: svc backup create ID --storage ${storage.name}`)}\n`,
  );
}

async function bucketOf(context: CommandContext, endpoint: string, options: AddOptions) {
  const { bucket = "", region = "", prefix = "", accessKey, secretKeyFile, pathStyle, ca } = options;
  if (bucket === "") throw new UsageError("--s3 needs --bucket");
  // Without an id both stay as they are.
  const credentials =
    accessKey === undefined
      ? {}
      : { access_key: accessKey, secret_key: await readSecret(context, secretKeyFile) };
  return {
    ...{ endpoint, bucket, region, prefix, ...credentials },
    ...(pathStyle !== undefined && { path_style: pathStyle }),
    ca: ca === undefined ? "" : await readInput(context.host, ca),
  };
}

/** Never from the command line, which everybody on the host can read. */
async function readSecret(context: CommandContext, file: string | undefined): Promise<string> {
  if (file === undefined && !isInteractive(context.host)) {
    throw new UsageError("nobody is there to type the secret: pass --secret-key-file, - for stdin");
  }
  const text =
    file === undefined
      ? await askSecret(context.host, "Secret key: ")
      : (await readInput(context.host, file)).replace(/\r?\n$/, "");
  if (text === "") throw new UsageError("the secret is empty");
  return text;
}

async function test(context: CommandContext, name: string): Promise<void> {
  const answer = await context.call(calls.testBackupStorage, { name });
  if (context.json) await context.printJson(answer);
  else {
    const lines = answer.checks.map((check) => `${check.name}: ${check.ok ? "works" : check.error}`);
    await context.print(lines.map((line) => `${escapeControls(line)}\n`).join(""));
  }
  if (answer.checks.some(({ ok }) => !ok)) throw new ReportedError(1);
}

async function remove(context: CommandContext, name: string): Promise<void> {
  const answer = await context.call(calls.removeBackupStorage, { name });
  if (context.json) return context.printJson(answer);
  return context.print(`Forgot ${escapeControls(answer.name)}\n`);
}
