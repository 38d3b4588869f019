/** `svc outdated`: checks for updates of installed apps. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import type { RunCommand } from "../run-command.ts";
import type { Column } from "../output/table.ts";
import { calls, type AppUpdate } from "../client/calls.ts";

export function addOutdatedCommand(parent: Command, run: RunCommand): void {
  parent
    .command("outdated")
    .description("check sources and registries for updates of the installed apps and svc")
    .action(run(showOutdated));
}

const columns: readonly Column<AppUpdate>[] = [
  { title: "ID", value: ({ id }) => id },
  { title: "VERSION", value: ({ version }) => version, shrinkTo: 7 },
  { title: "AVAILABLE", value: ({ available_version: version }) => version ?? "", shrinkTo: 7 },
  { title: "IMAGES", value: ({ outdated_images: images }) => images.join(", "), shrinkTo: 10 },
];

async function showOutdated(context: CommandContext): Promise<void> {
  const answer = await context.call(calls.listUpdates, {});
  if (context.json) return context.printJson(answer);
  const { updates, svc } = answer;
  for (const { id, problem } of updates) {
    if (problem !== undefined) context.note(`warning: could not check ${id}: ${problem}`);
  }
  const newer = updates.filter(isOutdated);
  const isQuiet = context.options.quiet === true;
  const isKnown = updates.every(({ problem }) => problem === undefined);
  if (newer.length > 0) await context.printTable(columns, newer);
  else if (isKnown && !isQuiet && svc === undefined) context.note("No updates found.");
  if (svc !== undefined && !isQuiet)
    context.note(`svc ${svc.version} is available${svc.url === "" ? "" : `: ${svc.url}`}`);
  const [first] = newer;
  if (first === undefined || isQuiet) return;
  const next =
    first.available_version === undefined ? `svc app repull ${first.id}` : `svc upgrade ${first.id}`;
  context.note(`Install it: ${next}`);
}

function isOutdated({ available_version: version, outdated_images: images }: AppUpdate): boolean {
  return version !== undefined || images.length > 0;
}
