/** `svc search` and `svc source show`: what can be installed. */
import type { Command } from "commander";
import { notFound } from "../../errors.ts";
import { AdvisedError, asSvcError, UsageError } from "../failure.ts";
import type { CommandContext } from "../context.ts";
import type { RunCommand } from "../run-command.ts";
import type { Column } from "../render/table.ts";
import { formatBytes } from "../render/units.ts";
import { calls, type FoundPackages, type ListedPackage } from "../transport/calls.ts";

interface SearchOptions {
  readonly source?: string;
}

export function addSearchCommand(parent: Command, run: RunCommand): void {
  parent
    .command("search")
    .description("list the packages of the sources, or those with these words")
    .argument("[word...]", "of their ids, names, summaries and tags")
    .option("--source <name>", "in this source alone")
    .action(run((context, words: string[], options: SearchOptions) => search(context, words, options)));
}

const mostShown = 1_000;

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
  const answer = await context.call(calls.searchPackages, { query, source, limit: mostShown });
  if (context.json) return context.printJson(answer);
  const where = source === "" ? "" : ` in ${source}`;
  await showPackages(
    context,
    answer,
    `No package has ${query === "" ? "been found" : `"${query}"`}${where}.`,
  );
}

/** A source's packages, or the card of one of them. @param spec `source` or `source/id` */
export async function showSource(context: CommandContext, spec: string): Promise<void> {
  const [source = "", ...rest] = spec.split("/");
  const id = rest.join("/");
  const answer = await context
    .call(calls.searchPackages, { query: id, source, limit: mostShown })
    .catch(async (error: unknown) => {
      if (id !== "" || asSvcError(error)?.reason !== "invalid_request") throw error;
      return { spec: await onlyPackage(context, source, error) };
    });
  if ("spec" in answer) return showSource(context, answer.spec);
  const card = answer.packages.find((listed) => listed.id === id);
  if (id === "") {
    if (context.json) return context.printJson(answer);
    return showPackages(context, answer, `There are no packages in ${source}.`);
  }
  tellProblems(context, answer);
  if (card === undefined) {
    const message = `there is no ${id} in ${source}; see what there is with: svc source show ${source}`;
    throw new AdvisedError(notFound("package", id, message), message);
  }
  if (context.json) return context.printJson(card);
  await context.printFields([
    ["Package", card.spec],
    ["Name", card.name],
    ["Summary", card.summary || undefined],
    ["Home page", card.homepage || undefined],
    ["License", card.license || "not told"],
    ["Runtime", card.runtime || "not told"],
    ["Asks for", card.permissions.length === 0 ? "nothing beyond the usual" : card.permissions.join(" ")],
    ["Size", card.size_bytes === undefined ? "not told" : `about ${formatBytes(card.size_bytes)}`],
  ]);
  context.note(`Install it: svc install ${card.spec}`);
}

/** What `svc install` would take. @throws the error where no source has a package of this id */
async function onlyPackage(context: CommandContext, id: string, error: unknown): Promise<string> {
  const { packages } = await context.call(calls.searchPackages, { query: id, source: "", limit: mostShown });
  const [first, ...others] = packages.filter((listed) => listed.id === id).map(({ spec }) => spec);
  if (first === undefined) throw error;
  if (others.length > 0)
    throw new UsageError(`${id} is in several sources; say which one: ${[first, ...others].join(", ")}`);
  return first;
}

async function showPackages(context: CommandContext, answer: FoundPackages, none: string): Promise<void> {
  tellProblems(context, answer);
  await context.printTable(columns, answer.packages, none);
  const { length: shown } = answer.packages;
  if (answer.total > shown)
    context.note(`${shown} of ${answer.total} are shown: say more of what you look for`);
  const [first] = answer.packages;
  if (first === undefined || context.options.quiet === true) return;
  context.note(`More of one: svc source show ${first.spec}; to install it: svc install ${first.spec}`);
}

function tellProblems(context: CommandContext, { errors }: FoundPackages): void {
  for (const { error } of errors) context.note(`warning: ${error}`);
}
