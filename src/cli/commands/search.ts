/** `svc search` and `svc source show`: packages that can be installed. */
import type { Command } from "commander";
import { notFound } from "../../errors.ts";
import { AdvisedError, asSvcError, UsageError } from "../output/failure.ts";
import type { CommandContext } from "../context.ts";
import type { RunCommand } from "../run-command.ts";
import type { Column } from "../output/table.ts";
import { formatBytes } from "../output/units.ts";
import { calls, type FoundPackages, type ListedPackage } from "../client/calls.ts";

interface SearchOptions {
  readonly source?: string;
}

export function addSearchCommand(parent: Command, run: RunCommand): void {
  parent
    .command("search")
    .description("search the packages of the sources")
    .argument("[word...]", "words to find in IDs, names, summaries and tags")
    .option("--source <name>", "search only in this source")
    .action(run((context, words: string[], options: SearchOptions) => search(context, words, options)));
}

const maxShown = 1_000;

const columns: readonly Column<ListedPackage>[] = [
  { title: "PACKAGE", value: ({ spec }) => spec },
  { title: "NAME", value: ({ name }) => name, shrinkTo: 8, dispensable: 2 },
  { title: "RUNTIME", value: ({ runtime }) => runtime, dispensable: 1 },
  { title: "SUMMARY", value: ({ summary }) => summary, shrinkTo: 20 },
];

async function search(
  context: CommandContext,
  words: readonly string[],
  { source = "" }: SearchOptions,
): Promise<void> {
  const query = words.join(" ");
  const answer = await context.call(calls.searchPackages, { query, source, limit: maxShown });
  if (context.json) return context.printJson(answer);
  const where = source === "" ? "" : ` in ${source}`;
  await showPackages(
    context,
    answer,
    query === "" ? `No packages${where}.` : `No packages match "${query}"${where}.`,
  );
}

/** The packages of a source, or the details of one package. @param spec `source` or `source/id` */
export async function showSource(context: CommandContext, spec: string): Promise<void> {
  const [source = "", ...rest] = spec.split("/");
  const id = rest.join("/");
  const answer = await context
    .call(calls.searchPackages, { query: id, source, limit: maxShown })
    .catch(async (error: unknown) => {
      if (id !== "" || asSvcError(error)?.reason !== "invalid_request") throw error;
      return { spec: await onlyPackage(context, source) };
    });
  if ("spec" in answer) return showSource(context, answer.spec);
  const card = answer.packages.find((listed) => listed.id === id);
  if (id === "") {
    if (context.json) return context.printJson(answer);
    return showPackages(context, answer, `No packages in ${source}.`);
  }
  noteProblems(context, answer);
  if (card === undefined) {
    const message = `source ${source} has no package ${id}; list its packages: svc source show ${source}`;
    throw new AdvisedError(notFound("package", id, message), message);
  }
  if (context.json) return context.printJson(card);
  await context.printFields([
    ["Package", card.spec],
    ["Name", card.name],
    ["Summary", card.summary || undefined],
    ["Home page", card.homepage || undefined],
    ["License", card.license || "unknown"],
    ["Runtime", card.runtime || "unknown"],
    ["Permissions", card.permissions.length === 0 ? "none" : card.permissions.join(" ")],
    ["Size", card.size_bytes === undefined ? "unknown" : `about ${formatBytes(card.size_bytes)}`],
  ]);
  context.note(`Install it: svc install ${card.spec}`);
}

/** The package that `svc install` would choose. @throws SvcError `not_found` if no source has a package with this ID */
async function onlyPackage(context: CommandContext, id: string): Promise<string> {
  const { packages } = await context.call(calls.searchPackages, { query: id, source: "", limit: maxShown });
  const [first, ...others] = packages.filter((listed) => listed.id === id).map(({ spec }) => spec);
  if (first === undefined) {
    const message = `no source or package has the name "${id}"; find one with: svc source ls, svc search`;
    throw new AdvisedError(notFound("package", id, message), message);
  }
  if (others.length > 0)
    throw new UsageError(`${id} is in several sources; choose one: ${[first, ...others].join(", ")}`);
  return first;
}

async function showPackages(context: CommandContext, answer: FoundPackages, none: string): Promise<void> {
  noteProblems(context, answer);
  await context.printTable(columns, answer.packages, none);
  const { length: shown } = answer.packages;
  if (answer.total > shown)
    context.note(`Showing ${shown} of ${answer.total}: add words to narrow the search`);
  const [first] = answer.packages;
  if (first === undefined || context.options.quiet === true) return;
  context.note(`Details: svc source show ${first.spec}; install: svc install ${first.spec}`);
}

function noteProblems(context: CommandContext, { errors }: FoundPackages): void {
  for (const { error } of errors) context.note(`warning: ${error}`);
}
