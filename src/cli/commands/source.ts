/** `svc source …`: the package indexes. */
import { resolve } from "node:path";
import type { Command } from "commander";
import { absoluteIfPath } from "../input/absolute-path.ts";
import type { CommandContext } from "../context.ts";
import { examples } from "../examples.ts";
import { reportRemarks, requireTrustedPath } from "../packages/package-plan.ts";
import { UsageError } from "../output/failure.ts";
import type { RunCommand } from "../run-command.ts";
import type { Column } from "../output/table.ts";
import { calls, type Source } from "../client/calls.ts";

export function addSourceCommand(parent: Command, run: RunCommand): void {
  const source = parent.command("source").description("list, add and remove sources of packages");
  source
    .command("list", { isDefault: true })
    .alias("ls")
    .description("list the sources (also: svc source)")
    .action(run(list));
  source
    .command("show")
    .description("list the packages of a source, or show details of one package")
    .argument("<name>", "a source; or a package: its ID, or source/id")
    .action(
      run(async (context, name: string) => {
        const { showSource } = await import("./search.ts");
        return showSource(context, name);
      }),
    );
  source
    .command("add")
    .description("add a source, or change its URL")
    .argument("<name>", "name used in source/id and with --source")
    .argument("<url>", "a git repository, the https URL of an index.yaml, or a directory with one")
    .addHelpText(
      "after",
      examples(
        "svc source add main https://git.example.org/packages.git",
        "svc source add team https://packages.example.org/index.yaml",
        "svc source add own /srv/packages",
      ),
    )
    .action(run((context, name: string, url: string) => add(context, name, url)));
  source
    .command("remove")
    .alias("rm")
    .description("remove a source; apps installed from it stay")
    .argument("<name>", "the source")
    .action(run((context, name: string) => remove(context, name)));
  source
    .command("check")
    .description("check the index.yaml of your own source, and the packages next to it, without a daemon")
    .argument("[dir]", "the directory of the index.yaml", ".")
    .action(run(check));
}

const columns: readonly Column<Source>[] = [
  { title: "NAME", value: ({ name }) => name },
  { title: "URL", value: ({ url }) => url, shrinkTo: 16 },
  {
    title: "FROM",
    value: ({ configured, shipped }) => (configured ? "configuration" : shipped ? "svc" : "added"),
  },
];

async function list(context: CommandContext): Promise<void> {
  const answer = await context.call(calls.listSources, {});
  if (context.json) return context.printJson(answer);
  const none = "No sources yet. Add one: svc source add NAME URL";
  return context.printTable(columns, answer.sources, none);
}

async function add(context: CommandContext, name: string, url: string): Promise<void> {
  const source = await context.call(calls.upsertSource, {
    ...{ name, url: absoluteIfPath(context, url), check: true },
  });
  const { name: added } = source;
  const text = `Added ${added}. Install from it: svc install ${added}/ID`;
  await context.printResult(source, text);
  const { errors } = await context.call(calls.searchPackages, { query: "", source: added, limit: 1 });
  for (const { error } of errors) context.note(`warning: ${error}`);
}

async function remove(context: CommandContext, name: string): Promise<void> {
  const answer = await context.call(calls.removeSource, { name });
  return context.printResult(answer, `Removed ${answer.name}`);
}

async function check(context: CommandContext, dir: string): Promise<void> {
  if (/^[a-z][a-z+.-]*:\/\//.test(dir))
    throw new UsageError(`${dir} is a URL, but only a local directory can be checked: clone it first`);
  const path = resolve(dir);
  requireTrustedPath(context, path);
  const { checkIndex } = await import("../../authoring/check.ts");
  const problems = await checkIndex(path, await context.host.program.settingsThread());
  return reportRemarks(context, { problems, advice: [] });
}
