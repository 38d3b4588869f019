/** `svc ls`: the apps that the caller may see. */
import { Option, type Command } from "commander";
import type { RunCommand } from "../run-command.ts";
import { machineOf } from "../app-url.ts";
import { appColumns, statusOf } from "../output/app-table.ts";
import { listAllApps } from "../pages.ts";
import type { App } from "../client/calls.ts";
import type { CommandContext } from "../context.ts";
import { UsageError } from "../output/failure.ts";
import { watchable, watchOption } from "../output/watched.ts";

/** Help does not list `svc app ls`, which is the same as `svc ls`. */
export function addLsCommand(parent: Command, run: RunCommand): void {
  parent
    .command("ls", { hidden: parent.name() === "app" })
    .aliases(["list", "ps"])
    .description("list the installed apps")
    .option(...watchOption)
    .option("--state <state>", "only apps in this state, such as running or failed")
    .option("--runtime <runtime>", "only apps with this runtime, such as docker")
    .option("--owner <user>", "only apps of this user, by name or number")
    .option("--outdated", "only apps with an available update")
    .option(
      "--all-nodes",
      "list apps on this machine, all named nodes and --host; --timeout applies per node (default: 10 s)",
    )
    // Docker users type it: docker ps lists only running containers without it.
    .addOption(new Option("-a, --all", "has no effect: stopped apps are listed, too").hideHelp())
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

function matches({ state, runtime, owner, outdated }: Filters): (app: App) => boolean {
  return (app) =>
    (state === undefined || statusOf(app) === state.toUpperCase()) &&
    (runtime === undefined || app.runtime === runtime) &&
    (owner === undefined || app.owner_name === owner || String(app.owner) === owner) &&
    (outdated !== true || app.available_version !== undefined);
}

/** @throws UsageError for an unknown state or runtime */
async function requireKnownFilters({ state, runtime }: Filters): Promise<void> {
  if (state === undefined && runtime === undefined) return;
  const { AppRuntimes, AppStatuses } = await import("../../../gen/svc/v1/values.ts");
  for (const [what, word, words] of [
    ["state", state, AppStatuses.map((each) => each.toLowerCase())],
    ["runtime", runtime, AppRuntimes],
  ] as const) {
    if (word !== undefined && !words.some((each) => each === (what === "state" ? word.toLowerCase() : word)))
      throw new UsageError(`unknown ${what} "${word}"; use one of: ${words.join(", ")}`);
  }
}

async function showApps(context: CommandContext, options: ListOptions = {}): Promise<void> {
  const { watch = false, allNodes = false } = options;
  const { quiet = false } = context.options;
  await requireKnownFilters(options);
  if (allNodes) {
    if (quiet) throw new UsageError("--quiet cannot be used with --all-nodes: an ID does not show its node");
    if (watch) throw new UsageError("--watch cannot be used with --all-nodes");
    const { showAllNodes } = await import("./ls-all-nodes.ts");
    return showAllNodes(context, matches(options));
  }
  const all = await listAllApps(context);
  const apps = all.filter(matches(options));
  if (context.json) return context.printJson({ apps, next_page_token: "" });
  const none =
    all.length > 0
      ? "No installed app matches."
      : "No apps are installed. Find one: svc search; install it: svc install SPEC";
  const machine = await machineOf(context);
  await context.printTable(appColumns(context.host.now(), apps, machine), apps, none);
  if (quiet) return;
  const overdue = apps.filter(({ backups }) => backups?.overdue === true).map(({ id }) => id);
  if (overdue.length > 0) {
    context.note(
      `warning: backups are overdue of ${overdue.join(", ")}; see why: svc backup policy ID; make them: svc backup create ${overdue.join(" ")}`,
    );
  }
  const outdated = apps.filter((app) => app.available_version !== undefined).map(({ id }) => id);
  if (outdated.length > 0) context.note(`Updates are available for ${outdated.join(", ")}: svc outdated`);
}
