/** `svc ls`: the apps that the caller may see. */
import type { Command } from "commander";
import type { RunCommand } from "../run-command.ts";
import { appColumns } from "../render/app-table.ts";
import { pagesOf } from "../pages.ts";
import { calls, type App } from "../transport/calls.ts";
import type { CommandContext } from "../context.ts";
import { UsageError } from "../failure.ts";
import { watchable, watchOption } from "../watched.ts";

export function addLsCommand(parent: Command, run: RunCommand): void {
  parent
    .command("ls")
    .alias("list")
    .description("list the installed apps")
    .option(...watchOption)
    .option("--state <state>", "only those in this state, such as running or failed")
    .option("--runtime <runtime>", "only those that this runs, such as docker")
    .option("--owner <user>", "only those of this user, by name or number")
    .option("--outdated", "only those of which something newer was found")
    .option(
      "--all-nodes",
      "of this machine, every node of svc node and that of --host, each of which has --timeout (default: 10 s)",
    )
    .action(run(watchable(showApps)));
}

export interface ListOptions extends Filters {
  readonly watch?: boolean;
  readonly allNodes?: boolean;
}

interface Filters {
  readonly state?: string;
  readonly runtime?: string;
  readonly owner?: string;
  readonly outdated?: boolean;
}

function isMeant({ state, runtime, owner, outdated }: Filters): (app: App) => boolean {
  return (app) =>
    (state === undefined || app.state === state.toUpperCase()) &&
    (runtime === undefined || app.runtime === runtime) &&
    (owner === undefined || app.owner_name === owner || String(app.owner) === owner) &&
    (outdated !== true || app.available_version !== undefined);
}

/** @throws UsageError for a word that no app has */
async function requireWords({ state, runtime }: Filters): Promise<void> {
  if (state === undefined && runtime === undefined) return;
  const { AppRuntimes, AppStates } = await import("../../../gen/svc/v1/words.ts");
  for (const [what, word, words] of [
    ["state", state, AppStates.map((each) => each.toLowerCase())],
    ["runtime", runtime, AppRuntimes],
  ] as const) {
    if (word !== undefined && !words.some((each) => each === (what === "state" ? word.toLowerCase() : word)))
      throw new UsageError(`there is no ${what} "${word}"; there are ${words.join(", ")}`);
  }
}

export async function showApps(context: CommandContext, options: ListOptions = {}): Promise<void> {
  const { watch = false, allNodes = false } = options;
  const { quiet = false } = context.options;
  await requireWords(options);
  if (allNodes) {
    if (quiet) throw new UsageError("an id alone does not say on which node it is: leave --quiet out");
    if (watch) throw new UsageError("several nodes are asked once: leave --watch out");
    const { showAllNodes } = await import("./ls-all-nodes.ts");
    return showAllNodes(context, isMeant(options));
  }
  const all = await listAllApps(context);
  const apps = all.filter(isMeant(options));
  if (context.json) return context.printJson({ apps, next_page_token: "" });
  const none =
    all.length > 0
      ? "None of the installed apps is such a one."
      : "No apps are installed. Find one: svc search; install it: svc install SPEC";
  await context.printTable(appColumns(context.host.now(), apps), apps, none);
  if (quiet) return;
  const overdue = apps.filter(({ backups }) => backups?.overdue === true).map(({ id }) => id);
  if (overdue.length > 0) {
    context.note(
      `warning: backups are overdue of ${overdue.join(", ")}; see why: svc backup policy ID; make them: svc backup create ${overdue.join(" ")}`,
    );
  }
  const outdated = apps.filter((app) => app.available_version !== undefined).map(({ id }) => id);
  if (outdated.length > 0) context.note(`There is something newer of ${outdated.join(", ")}: svc outdated`);
}

/** All pages. */
export async function listAllApps(context: CommandContext): Promise<readonly App[]> {
  const apps: App[] = [];
  for await (const page of pagesOf(context, calls.listApps, {})) apps.push(...page.apps);
  return apps;
}
