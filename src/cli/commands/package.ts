/** `svc package …`: for package authors. */
import { resolve } from "node:path";
import { Option, type Command } from "commander";
import type { PackageReport } from "../../authoring/check.ts";
import {
  templateFiles,
  templateMemory,
  templateNames,
  type TemplateName,
} from "../../authoring/templates.ts";
import { shellWord } from "../../lib/shell-word.ts";
import { runWithAdvice } from "../output/advice.ts";
import { adviceOnSettings, setFileOption, setStdinOption } from "../input/assignments.ts";
import type { CommandContext } from "../context.ts";
import { exitCodes } from "../output/exit-codes.ts";
import { ReportedError, UnusableFileError, UsageError } from "../output/failure.ts";
import { examples } from "../examples.ts";
import { exists } from "../exists.ts";
import { collect } from "../input/option-values.ts";
import { reportRemarks, requireTrustedPath, writePlanned } from "../packages/package-plan.ts";
import type { PackageRunOptions } from "../packages/package-run.ts";
import type { RunCommand } from "../run-command.ts";

interface InitOptions {
  readonly from?: string;
  readonly id?: string;
  readonly name?: string;
  readonly template?: TemplateName;
}

export function addPackageCommand(parent: Command, run: RunCommand): void {
  const command = parent.command("package").description("create, check and try packages");
  command
    .command("init")
    .description("generate the svc.yaml of a directory from its files")
    .argument("[dir]", "the directory; with --template it may be new", ".")
    .option(
      "--from <file>",
      "the file to start from, such as compose.yaml, Dockerfile, Procfile or package.json",
    )
    .addOption(new Option("--template <name>", "start from an example program").choices(templateNames))
    .option("--id <id>", "ID of the package (default: the name of the directory)")
    .option("--name <name>", "display name")
    .addHelpText(
      "after",
      examples(
        "svc package init",
        `svc package init blog --template ${templateNames[0]}`,
        "svc package init shop --from compose.yaml --id shop",
        "svc package check shop && svc package run shop",
      ),
    )
    .action(run((context, dir: string, options: InitOptions) => init(context, resolve(dir), options)));
  command
    .command("check")
    .description("check a package for problems; needs neither a daemon nor a network")
    .argument("[dir]", "the directory of the svc.yaml", ".")
    .action(
      run(async (context, dir: string) => {
        await check(context, resolve(dir));
      }),
    );
  command
    .command("run")
    .description("build and run a package in a temporary store, with its log, until Ctrl-C")
    .argument("[dir]", "the directory of the svc.yaml", ".")
    .option("--set <key=value>", "set a setting (repeatable)", collect)
    .option(...setFileOption)
    .option(...setStdinOption)
    .option("--accept-license", "accept the licenses of the package")
    .option("--accept-permissions", "grant the host permissions that the package requires")
    .action(
      runWithAdvice(
        run,
        adviceOnSettings,
      )(async (context, dir: string, options: PackageRunOptions) => {
        requireTrustedPath(context, resolve(dir));
        const { runPackage } = await import("../packages/package-run.ts");
        await runPackage(context, resolve(dir), options);
      }),
    );
  command
    .command("schema")
    .description("print the JSON Schema of svc.yaml, for editors")
    .action(run(printSchema));
}

async function init(context: CommandContext, dir: string, options: InitOptions): Promise<void> {
  const path = resolve(dir, "svc.yaml");
  if (exists(path))
    throw new UsageError(`${path} already exists; check it: svc package check ${shellWord(dir)}`);
  const { template, ...plan } = options;
  if (template === undefined && !exists(dir))
    throw new UsageError(
      `${dir} does not exist; to start a package there: svc package init ${shellWord(dir)} --template ${templateNames.join("|")}`,
    );
  await writePlanned(context, dir, {
    ...plan,
    ...(template !== undefined && { template: templateFiles(template), memory: templateMemory }),
  });
  const report = await checked(context, dir);
  if (context.json) {
    await context.printJson(report);
    if (report.problems.length > 0) throw new ReportedError(exitCodes.failed);
    return;
  }
  if (report.problems.length > 0) context.note(`Wrote ${path}. Fix before installing:`);
  return reportRemarks(context, {
    ...report,
    about: `Wrote ${path}. Try it: svc package run ${shellWord(dir)}`,
  });
}

/** @param dir absolute @returns the manifest of a package without problems */
export async function check(context: CommandContext, dir: string): Promise<PackageReport["manifest"]> {
  requireTrustedPath(context, dir);
  if (!exists(dir)) throw new UnusableFileError(`${dir} does not exist`);
  const report = await checked(context, dir);
  const { manifest } = report;
  const permissions = manifest?.permissions ?? [];
  const how =
    permissions.length === 0 || context.host.uid === 0
      ? `can be installed: svc install ${shellWord(dir)}`
      : `can be installed only by root, because it requires ${permissions.join(" and ")}: sudo svc install ${shellWord(dir)}`;
  const about = manifest && `${manifest.id} ${manifest.version} ${how}`;
  await reportRemarks(context, { ...report, ...(about !== undefined && { about }) });
  return manifest;
}

async function checked({ host }: CommandContext, dir: string): Promise<PackageReport> {
  const [{ checkPackage }, { findCompose }] = await Promise.all([
    import("../../authoring/check.ts"),
    import("../../authoring/compose-program.ts"),
  ]);
  return checkPackage(dir, await host.program.settingsThread(), () => findCompose(host.env));
}

async function printSchema(context: CommandContext): Promise<void> {
  const { readManifestSchema } = await import("../../authoring/check.ts");
  await context.print(await readManifestSchema());
}
